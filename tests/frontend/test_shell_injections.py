"""Templates that would execute a quoted value as code: each is rejected, and each is shown to execute in a
shell.

Each V stands for a value. The payload is quoted as a word, as in an accepted template.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from shell_programs import SHELLS, filled_with, run

from llc.frontend.template.template import parse

V = "${captured.v.output}"
NUMBER = "a[$(:>pwned)]"
COMMAND = ":>pwned"
PROGRAM = "touch pwned"
RECIPE = "x:\n\t:>pwned"
AWK = 'BEGIN{system("touch pwned")}'
GIT_TRANSPORTS = ("clone V . d", "fetch V .", "pull V .", "ls-remote V .", "fetch-pack V .")
GIT_COMMIT = "git -c user.name=a -c user.email=a@b commit -q --allow-empty -m a"
WRITTEN_CONFIG = "-1 --format=%x5bcore%x5d%nrepositoryformatversion=0%nfsmonitor=:>pwned --output=.git/config"

RUN_BY_ANY_SHELL = [
    ("echo V | xargs -I{} sh -c 'echo {}'", "$(:>pwned)"),
    ("echo V | xargs -I % sh -c 'echo %'", "$(:>pwned)"),
    ("echo V | xargs -n1 sh -c", COMMAND),
    ("echo V | timeout 5 xargs sh -c", COMMAND),
    ("SHELL=/bin/sh; $SHELL -c V", COMMAND),
    ('SHELL=/bin/sh; v=V; "$SHELL" -c "$v"', COMMAND),
    ("SHELL=/bin/sh; echo V | $SHELL", COMMAND),
    ("$(command -v sh) -c V", COMMAND),
    ("echo V | while read -r l; do $l; done", PROGRAM),
    ("for l in V; do $l; done", PROGRAM),
    ("v=V; exec $v", PROGRAM),
    ("$(echo V)", PROGRAM),
    ("sh -c '$1' _ V", PROGRAM),
    ("sh -c 'eval \"$0\"' V", COMMAND),
    ('n=V; export n; sh -c "eval \\$n"', COMMAND),
    ("echo V | (sh)", COMMAND),
    ("echo V | if true; then sh; fi", COMMAND),
    ("echo V | timeout 5 sh", COMMAND),
    ("(echo V) | sh", COMMAND),
    ("f() { echo V; }; f | sh", COMMAND),
    ("echo V > f; sh f", COMMAND),
    ("echo V > f; . ./f", COMMAND),
    ("echo V | tee f; sh ./f", COMMAND),
    ("cat > f <<EOF\nV\nEOF\nsh f", COMMAND),
    ("trap -- V EXIT", COMMAND),
    ("echo ': >pwned' > p; chmod +x p; flock -w 3 l V", "./p"),
    ("env -S V", PROGRAM),
    ("git -c alias.x=V x", "!touch pwned"),
    ("git -C . -c core.pager=x -c alias.x=V x", "!touch pwned"),
    ('v=V; git -c alias.x="$v" x', "!touch pwned"),
    ("ssh -o ProxyCommand=V host", PROGRAM),
    ('v=V; ssh -o ProxyCommand="$v" host', PROGRAM),
    ("printf '%s\\n' V | make -f -", RECIPE),
    ("make -f - <<EOF\nV\nEOF", RECIPE),
    ("make --eval=V", RECIPE),
    ("n=V; echo a | xargs $n", PROGRAM),
    ("n=V; echo a | xargs -I {} $n", PROGRAM),
    ("n=V; flock f $n", PROGRAM),
    ("n=V; find . -maxdepth 0 $n", "-exec touch pwned ;"),
    ('set -- . -exec touch pwned V; find "$@"', ";"),
    ("n=V; tar -cf /dev/null --checkpoint=1 $n /etc/passwd", "--checkpoint-action=exec=:>pwned"),
    ("tar -cf /dev/null --checkpoint=1 V /etc/passwd", "--checkpoint-action=exec=touch pwned"),
    ("ssh V host", "-oProxyCommand=touch pwned"),
    ("tar -cf /dev/null --checkpoint=1 --checkpoint-action=exec=V /etc/passwd", PROGRAM),
    *((f"git init -q; git {command}", f"--upload-pack={COMMAND}") for command in GIT_TRANSPORTS),
    ("git init -q; git pull -- . V", f"--upload-pack={COMMAND}"),
    (f"git init -q; {GIT_COMMIT}; git push V . HEAD:x", f"--exec={COMMAND}"),
    ("git init -q; git archive --remote=. V HEAD", f"--exec={COMMAND}"),
    ("echo hello > f; git grep --no-index -e hello V", "--open-files-in-pager=touch pwned;"),
    ("n=V; git $n", "-c alias.x=!:>pwned x"),
    ('mkdir e; printf ":>pwned" > e/git-x; chmod +x e/git-x; git V x', "--exec-path=./e"),
    (f"git init -q; {GIT_COMMIT}; n=V; git log $n; git status", WRITTEN_CONFIG),
    (f"git init -q; {GIT_COMMIT}; n=V; git show $n; git status", WRITTEN_CONFIG),
    ("echo a > f; zip -T x.zip f V", "-TT:>pwned;"),
    ("echo a > f; zip -T -TT V x.zip f", ":>pwned;"),
    ("echo a > f; n=V; zip x.zip f $n", "-T -TT :>pwned;"),
    ("echo .TH x > f; man V -Tutf8 -l f", "-Htouch pwned;"),
    ("awk V /etc/passwd", AWK),
    ("sed V /etc/passwd", "1e touch pwned"),
    ("v=V; GIT_SSH_COMMAND=$v git ls-remote ssh://host/x", PROGRAM),
    ("awk -v x=V 'BEGIN { system(x) }'", PROGRAM),
    ("awk 'BEGIN { system(\"echo \" ARGV[1]) }' V", "$(:>pwned)"),
    ("W=V awk 'BEGIN { system(ENVIRON[\"W\"]) }'", PROGRAM),
    ("v=V; export v; awk 'BEGIN { system(ENVIRON[\"v\"]) }'", PROGRAM),
    ("echo V | awk '{ system($0) }'", PROGRAM),
    ("echo V | awk '{ print $0 | \"sh\" }'", PROGRAM),
    ("echo V | awk '{ $0 | getline x }'", PROGRAM),
    ("echo V > f; awk '{ system($0) }' f", PROGRAM),
    ("echo V | sed 's/^/true; /e'", PROGRAM),
    ("echo V | sed e", "touch pwned"),
    ("python3 -c 'import os, sys; os.system(sys.argv[1])' V", PROGRAM),
    ("echo V | python3 -c 'eval(input())'", 'open("pwned", "w")'),
    ("perl -e 'system($ARGV[0])' V", PROGRAM),
    ("echo V | perl -ne 'eval $_'", 'system("touch pwned")'),
]
# Fixed programs for a shell that execute the content of a variable.
RUN_BY_ANY_SHELL += [
    ("X=V find . -maxdepth 0 -exec sh -c '$X' \\;", PROGRAM),
    ("export X=V; sh <<'EOF'\n$X\nEOF", PROGRAM),
    ("export X=V; make -s -f - <<'EOF'\nx:\n\t$$X\nEOF", PROGRAM),
    ("X=V awk 'BEGIN { system(\"$X\") }'", PROGRAM),
    ("export X=V; git -c alias.x='!$X' x", PROGRAM),
    ("X=V tar -cf /dev/null --checkpoint=1 --checkpoint-action=exec='$X' /etc/passwd", PROGRAM),
    ("X=V; c='$X'; eval \"$c\"", PROGRAM),
    ("X=V; c='eval $X'; $c", PROGRAM),
    ("X=V; f() { eval \"$1\"; }; f '$X'", PROGRAM),
    ("X=V; echo 'eval \"$X\"' > f; . ./f", COMMAND),
    ("export X=V; cat > f <<'EOF'\neval \"$X\"\nEOF\nsh f", COMMAND),
    ("export X=V; printf 'true\\neval $X\\n' | sh", COMMAND),
    ("export X=V; printf '%s\\n' 'eval \"$X\"' | sh", COMMAND),
    ('X=V; trap \'c="\\$X"; eval "$c"\' EXIT', PROGRAM),
    ("export X=V; echo 'x:; $$X' > Makefile; make -s -f Makefile", PROGRAM),
    ('X=V; while read -r c; do eval "$c"; done <<\'END\'\neval "$X"\nEND', COMMAND),
]
RUN_BY_BASH = [
    ("X=V; c='[[ $X -gt 3 ]]'; eval \"$c\"", NUMBER),
    ('X=V; l=(\'(( X ))\'); for c in "${l[@]}"; do eval "$c"; done', NUMBER),
    ("export X=V; bash <<'EOF'\nif true; then (( X )); fi\nEOF", NUMBER),
    ("export X=V; BASH_ENV=<(echo 'eval \"$X\"') bash -c :", COMMAND),
    ("echo V > f; BASH_ENV=./f bash -c true", COMMAND),
    ("echo V > f; export BASH_ENV=f; bash -c true", COMMAND),
    ("BASH_ENV=<(echo V) bash -c true", COMMAND),
    ("printf V 1", "-va[$(:>pwned)]"),
    ('v=V; printf "$v" 1', "-va[$(:>pwned)]"),
    ('"$BASH" -c V', COMMAND),
    ('"$BASH" <<< V', COMMAND),
    ("declare -i n; read n <<< V", NUMBER),
    ("declare -i n; for n in V; do :; done", NUMBER),
    ("declare -i n; printf -v n %s V", NUMBER),
    ("v=V; declare -i n=v", NUMBER),
    ("f() { local -i n; n=$1; }; f V", NUMBER),
    ('v=V; PS4="$v"; set -x; :', "$(:>pwned)"),
    ("read -r PS4 <<< V; set -x; :", "$(:>pwned)"),
    ("printf -v PS4 %s V; set -x; :", "$(:>pwned)"),
    ("while read l; do $l; done <<< V", PROGRAM),
    ("mapfile -t a <<< V; ${a[0]}", PROGRAM),
    ("n=$(echo V | iconv -f utf8 -t utf8); echo $((n))", NUMBER),
    ("n=$(echo V | base64 | base64 -d); echo $((n))", NUMBER),
    ("n=$(echo V | dd 2>/dev/null); echo $((n))", NUMBER),
    ("n=$(echo V | timeout 5 cat); echo $((n))", NUMBER),
    ("n=$(echo V | tr -d x); echo $((n))", NUMBER),
    ("n=$(echo V | grep '[0-9]'); echo $((n))", "a[$(:>pwned)0]"),
    ("n=$(echo V | awk '{ s += 1; print }'); echo $((n))", NUMBER),
    ("n=V; echo $(( ${n/[!0-9]/} ))", "xa[$(:>pwned)]"),
    ("n=$(expr V); echo $((n))", NUMBER),
    ("n=$(echo V | (cat)); echo $((n))", NUMBER),
    ("echo V > f; n=$(< f); echo $((n))", NUMBER),
    ("n=V; m=n; echo $((m))", NUMBER),
    ("n=V; declare -n r=m; r=$n; echo $((m))", NUMBER),
    ('n=V; eval "m=\\$n"; echo $((m))', NUMBER),
    ("echo V > >(sh); sleep 0.2", COMMAND),
    ("echo V | tee >(sh); sleep 0.2", COMMAND),
]
ACCEPTED = [
    ("echo V | xargs -I{} sh -c 'echo \"$1\"' _ {}", NUMBER),
    ("printf '%s\\n' V | xargs -n1 echo", COMMAND),
    ('printf -- V; printf "n %s" V', "-va[$(:>pwned)]"),
    ("flock -w V l true; xargs -n V true < /dev/null", "./p"),
    ("n=V; n=${n//[!0-9]/}; echo $((n))", NUMBER),
    ("n=$(echo V | tr -cd 0-9); echo $((n))", NUMBER),
    ("n=$(echo V | awk '{ s += 1 } END { print s }'); echo $((n))", NUMBER),
    ('v=V; case $v in *[!A-Za-z0-9]*) exit 2;; esac; sed "s/a/$v/" /etc/passwd', "x/e"),
    ("git -c user.name=V --version", "!touch pwned"),
    (
        "tar -cf /dev/null --checkpoint=1 -- V; tar -cf V -C V --exclude V .",
        "--checkpoint-action=exec=:>pwned",
    ),
    ("sort -o V -- V; ssh -p V -- V true; rsync --exclude V -- V V", "-oProxyCommand=touch pwned"),
    ("git clone -- V V; git fetch -- V; git push -- origin V; git rebase --onto V -- V", "--exec=:>pwned"),
    ("git grep -e V -- V; git archive -o f -- V; git clone -b V -- V; git -C V status", "-O:>pwned"),
    ("git diff V; git log -n V; git checkout V; n=V; git add $n; git diff -- $n; git commit -m $n", "x"),
    ("zip -x V -- f V; man -- V", "-TT:>pwned"),
    ('n=V; find "$n" -newer "$n"; find . -name V', "-exec touch pwned ;"),
    ("echo V > f; cat f; wc -l < f", COMMAND),
    ("echo V > m; git commit -F m; python3 tool.py m", COMMAND),
    ("git switch -c V; git cherry-pick -x V; git commit -m V", "!touch pwned"),
    ('echo V | "$HOME/bin/tool" -x; "$HOME/bin/tool" -c V', COMMAND),
    ("find V -name '*.py' -exec sed -i s/a/b/ {} +", COMMAND),
    ('cat <<EOF > f\nV\nEOF\nfor f in V; do test -f "$f"; done', COMMAND),
    ('"$(command -v echo)" V', COMMAND),
    ("T=V awk 'BEGIN { print ENVIRON[\"T\"] }'", AWK),
    ('v=V; c=\'echo "$v"\'; eval "$c"; c=\'grep -c x\'; $c "$v" < /dev/null', COMMAND),
    ("v=V; cat > f <<'EOF'\nthe $v is [[ x ]] 3\nEOF\nbash deploy.sh", NUMBER),
    ('v=V; cat > f <<\'EOF\'\nfor f in "$@"; do echo "$f"; done\nEOF\nsh f "$v"', COMMAND),
    ("v=V; echo 'x[a] = 1' > f.py; python3 f.py \"$v\"; x='-x $y'; ls $x \"$v\"", NUMBER),
]
# A rejected command, the same with the fix of its message, and the output for the value; None: it is not run,
# as the program may be missing.
FIXES = [
    ('sh -c "echo V"', "sh -c 'echo \"$1\"' _ V", "V\n"),
    ("python3 -c \"print('V')\"", "python3 -c 'import sys; print(sys.argv[1])' V", "V\n"),
    ("perl -e 'print \"V\"'", "perl -e 'print $ARGV[0]' -- V", "V"),
    ("ruby -e 'print \"V\"'", "ruby -e 'print ARGV[0]' -- V", None),
    ("php -r 'echo \"V\";'", "php -r 'echo $argv[1];' -- V", None),
    ("node -e 'console.log(\"V\")'", "node -e 'console.log(process.argv[1])' V", None),
    ("lua -e 'print(\"V\")'", "v=V lua -e 'print(os.getenv(\"v\"))'", None),
    ("psql -c 'select V'", "echo \"select :'v'\" | psql -v v=V", None),
    ("echo a | awk '{ print \"V\" }'", "echo a | v=V awk '{ print ENVIRON[\"v\"] }'", "V\n"),
    ("make -s x=V", "value=V make -s -f - <<'EOF'\nx:\n\t@echo \"$$value\"\nEOF", "V\n"),
    ("jq '.[\"V\"]' f", "jq -nr --arg v V '$v'", "V\n"),
    ('eval "x=V"', 'export v=V; eval \'x="$v"\'; echo "$x"', "V\n"),
    ("eval V", "export v=V; eval 'echo \"$v\"'", "V\n"),
    ('trap "echo V" EXIT', "export v=V; trap 'echo \"$v\"' EXIT", "V\n"),
    ("watch 'cat V'", "export v=V; watch 'cat \"$v\"'", None),
    (". /dev/stdin <<EOF\necho V\nEOF", "export v=V; . /dev/stdin <<'EOF'\necho \"$v\"\nEOF", "V\n"),
    ("at now <<EOF\nrm V\nEOF", "export v=V; at now <<'EOF'\nrm \"$v\"\nEOF", None),
    ("ssh host 'cat V'", "printf '%s\\n' V | ssh host 'read -r v; cat \"$v\"'", None),
    ("git pull origin V", "git fetch -- V; git merge FETCH_HEAD", None),
    ("v=V; tar -cf - $v", 'v=V; tar -cf - -- "$v"', None),
    ("v=V; find $v", 'v=V; find "$v"', None),
    ("tar -cf - V", "tar -cf - -- V", None),
    ("printf V", "printf '%s' V", "V"),
    ("unset V", "unset v", ""),
    ("V --version", "echo V", "V\n"),
    ("echo $(( V / 2 ))", "[ V -gt 0 ] || expr length V", "23\n"),
    ("echo \\V", "echo V", "V\n"),
    ('echo "${NO:-V}"', 'v=V; echo "${NO:-$v}"', "V\n"),
    ("echo `basename V`", "echo $(basename V)", "V\n"),
    ("cat <<-'EOF'\n\tV\nEOF", "cat <<'EOF'\n\tV\nEOF", "\tV\n"),
    ("cat <<EOF\n$(echo V)\nEOF", 'v=V\ncat <<EOF\n$(echo "$v")\nEOF', "V\n"),
    ("echo a >&V", "echo a > V 2>&1; cat V", "a\n"),
    ("cat <<V\na\nV", "cat <<EOF\na\nEOF", "a\n"),
    ("alias e=echo\necho V", 'v=V\nalias e=echo\necho "$v"', "V\n"),
]
HOSTILE = "it's $(:>pwned) `:>p`\\*"


def severities(command: str) -> set[tuple[str, str]]:
    problems = parse(re.sub(r"\bV\b", lambda _: V, command), kind="shell").problems
    return {(problem.id, problem.severity) for problem in problems}


def runs_payload(shell: str, command: str, payload: str, folder: Path) -> bool:
    """Whether the payload was executed."""
    value = payload if "<<EOF" in command else f"'{payload}'"
    run(shell, re.sub(r"\bV\b", lambda _: value, command), folder)
    return (folder / "pwned").exists()


@pytest.mark.parametrize(("command", "payload"), RUN_BY_ANY_SHELL + RUN_BY_BASH)
def test_executable_value_is_rejected(command: str, payload: str) -> None:
    """Each command has exactly one kind of error."""
    assert severities(command) == {("variable-in-code", "error")}


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(("command", "payload"), RUN_BY_ANY_SHELL)
def test_every_shell_executes_the_value(shell: str, command: str, payload: str, tmp_path: Path) -> None:
    """The errors are needed: the code in the quoted value is executed."""
    for program in set(command.split()) & {"git", "ssh", "make", "tar", "flock", "zip", "man"}:
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    assert runs_payload(shell, command, payload, tmp_path)


@pytest.mark.parametrize("shell", [shell for shell in SHELLS if "bash" in shell])
@pytest.mark.parametrize(("command", "payload"), RUN_BY_BASH)
def test_bash_executes_the_value(shell: str, command: str, payload: str, tmp_path: Path) -> None:
    """Commands that only bash evaluates."""
    assert runs_payload(shell, command, payload, tmp_path)


@pytest.mark.parametrize("shell", [shell for shell in SHELLS if "bash" in shell])
@pytest.mark.parametrize(("command", "payload"), ACCEPTED)
def test_accepted_template_does_not_execute_the_value(
    shell: str, command: str, payload: str, tmp_path: Path
) -> None:
    """The safe form of a rejected template is accepted without a diagnostic."""
    assert severities(command) == set()
    assert not runs_payload(shell, command, payload, tmp_path)


@pytest.mark.parametrize(("command", "fixed", "printed"), FIXES)
def test_fix_is_accepted_and_prints_the_value(
    command: str, fixed: str, printed: str | None, tmp_path: Path
) -> None:
    """In every shell."""
    assert severities(command)
    assert severities(fixed) == set()
    template = parse(re.sub(r"\bV\b", lambda _: V, fixed), kind="shell")
    for shell in SHELLS if printed is not None else []:
        output = run(shell, filled_with(template, HOSTILE), tmp_path).stdout.decode()
        assert output == printed.replace("V", HOSTILE)
    assert not (tmp_path / "pwned").exists()
