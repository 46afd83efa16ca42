"""Values that reach, through shell variables, a position where bash evaluates them.

Each V stands for a value. Each command that is an error here was observed to execute its value in bash, or is
similar to one that does.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from shell_programs import SHELLS, run

from llc.frontend.template.nodes import Problem
from llc.frontend.template.template import parse

V = "${captured.v.output}"
BASH = [shell for shell in SHELLS if "bash" in shell]
PAYLOAD = "a[$(:>pwned)]"  # executed in arithmetic and as a command


def problems_of(command: str) -> tuple[Problem, ...]:
    return parse(re.sub(r"\bV\b", lambda _: V, command), kind="shell").problems


# Code that is evaluated after reserved words, or by a command inside another one.
NESTED = [
    "if n=V; then for ((i=0;i<n;i++)); do :; done; fi",
    "n=V; time -p ((n))",
    "n=V; coproc X { ((n)); }; wait",
    "n=V; { { { { { { { { ((n)); }; }; }; }; }; }; }; }",
    "for n in V; do trap 'eval \"$n\"' EXIT; done",
    "n=V; ! trap 'eval \"$n\"' EXIT",
    "n=V; time -p -- eval eval '$n'",
    "n=V; x=1 eval 'x=2;' 'eval \"$n\"'",
    "n=V; command eval 'eval \"$n\"'",
    'n=V; bash -c -o errexit \'eval "$1"\' _ "$n"',
    'n=V; sh -ce \'eval "$1"\' _ "$n"',
]
EVALUATED = [
    "x=abc; n=V; echo ${x:n}",
    "n=V; echo ${x:$n}",
    "n=V; echo ${x:1:n}",
    'n=V; echo "${x[@]:n}"',
    "n=V; echo $[n]",
    "n=V; let x=n",
    "n=V; [[ -v $n ]]",
    "n=V; declare -n r=$n; echo $r",
    "m=V; n=$m; (( n ))",
    "m=V; declare -i n; n=$m",
    'n=V; trap "$n" EXIT',
    "n=V; source /dev/stdin <<< $n",
    "n=V; BASH_ENV=$n bash -c true",
    "n=V; PROMPT_COMMAND=$n bash",
    "read n <<< V; (( n > 1 ))",
    "mapfile -t a <<< V; (( a[0] ))",
    "while read n; do (( n )); done <<< V",
    "echo V | while read n; do (( n )); done",
    "for n in V; do (( n )); done",
    "set -- V; echo $(( $1 ))",
    "arr=(V); (( arr[0] ))",
    "f() { echo $(( $1 )); }; f V",
    "function f { local n=$1; echo $(( n )); }; f V",
    "n=$(echo V); echo $((n))",
    "n=\"$(printf '%s' V | head -1)\"; echo $((n))",
    "printf -v n %s V; (( n ))",
    "cat <<EOF | sh\nV\nEOF",
    "echo V | sh",
    "echo V | sudo bash -s",
    'n=V; echo "$n" | bash',
    'n=V; bash -c "echo $n"',
    "bash -c 'echo $(( $1 ))' _ V",
    "n=V; export n; bash -c 'echo $(( n ))'",
    "n=V bash -c 'echo $(( n ))'",
    "n=V; echo ${a[n]}",
    "n=V; a[n]=1",
    "n=V; a[$n]=1",
    "n=V; read $n",
    "n=V; unset $n",
    'n=V; eval "$n"',
    "n=V; echo ${!n}",
    "n=V; echo ${n@P}",
    "n=V\n[[ $n -gt 3 ]]",
    "n=V\n[[ n -gt 3 ]]",
    "n=V; if (( n > 3 )); then :; fi",
    "n=V; for ((i=0;i<n;i++)); do :; done",
    'n=V; ssh host "rm $n"',
    "read -r n < <(echo V); (( n ))",
    "{ read n; (( n )); } <<< V",
    "echo V | { read n; (( n )); }",
    "n=V; bash <<EOF\necho $n\nEOF",
    'n=V; python3 -c "print($n)"',
    'n=V; [ -v "$n" ]',
    'x=1; [ "$x" ] && n=V && echo $((n+1))',
    "select n in V; do (( n )); done",
    "for f in V; do echo rm $f; done | sh",
    "IFS=, read -ra a <<< V; echo $((a[0]))",
    "source <(echo V)",
    "case x in (x) n=V;; esac; echo $((n))",
    "n=V; n=${n:-0}; echo $(( n ))",
    "echo V | read; (( REPLY ))",
    'n=V; find . -execdir sh -c "$n" \\;',
    'n=V; git -c "alias.x=!$n" x',
    'n=V; git rebase --exec "$n" main',
    *NESTED,
    "find\n. <(echo V)",
    "x=find . <(echo V)",
    'x="a find" . <(echo V)',
]
SAFE = [
    'awk -v x=V \'BEGIN { system("date"); "date" | getline now; print x, now }\'',
    "echo V | awk '{ print $1 | \"sort\" }'",
    "echo V | sed 's/e/x/g; s/the/e/'",
    "python3 -c 'import subprocess, sys; subprocess.run([\"ls\", sys.argv[1]])' V",
    "perl -e 'system(\"ls\", $ARGV[0])' V",
    "node -e 'console.log(process.argv[1])' V",
    'n=V; git -C V status; find . -name "$n"; git add .',
    'n=V; echo "$n"',
    'n=V; [ "$n" -gt 3 ]',
    "n=V; case $n in ''|*[!0-9]*) exit 2;; esac; echo $((n))",
    "n=V; [[ $n =~ ^[0-9]+$ ]] || exit 1; (( n > 1 ))",
    'n=V; [ "$n" -ge 0 ] || exit 1; (( n > 1 ))',
    "n=$(wc -l < V); echo $((n))",
    "n=$(grep -c foo V); (( n > 1 ))",
    "n=$(echo V | wc -l); (( n > 1 ))",
    "n=$(echo V | tr -dc 0-9); (( n > 1 ))",
    "v=V; trap 'rm \"$v\"' EXIT",
    "bash -c 'echo \"$1\"' _ V",
    'i=0; for f in V; do i=$((i+1)); echo "$i $f"; done',
    "v=V; awk '{ a[$1]++ } END { print a[v] }' f",
    "case V in bash|sh) echo x;; esac",
    "printf '%s\\n' V | xargs -d '\\n' ruff check",
    "git diff V | while read a b f; do total=$((total + a)); done",
    "n=V; echo ${#n} $(( ${#n} + 1 ))",
    "n=V; echo ${n:0:3} ${n:-x} ${n%.*} ${n/a/b}",
    "n=V; declare -A m; m[$n]=1; echo ${m[$n]}",
    "x=V; [[ $x == foo && 3 -gt 2 ]]",
    "ENV=V make deploy",
    'i=0; while read -r line; do i=$((i + 1)); echo "$i: $line"; done <<< V',
    'a=(V); echo "${a[@]}" "${a[0]}" "${#a[@]}"',
    'count=3; echo V "it costs (( count ))" $((count + 1))',
    'f() { echo "$1"; }; f V; n=1; echo $((n))',
    "echo V > out.txt; n=$(date +%s); echo $(( n - 5 ))",
    "printf '%s\\n' V > list; ssh host 'read -r v; cat \"$v\"' < list",
    "printf '%s' V | python3 check.py",
    "echo V | ssh host 'cat > f'",
    "curl -d V http://x | jq -r .url",
    'v=V; echo "${v^^}" "${v:+set}" "${v//a/b}"',
    "export NAME=V; sh ./script.sh",
    "set -euo pipefail; echo V; n=1; (( n > 0 ))",
    "printf -v n %d V; (( n ))",
    'v=V; python3 tool.py "$v"',
    'v=V; bash script.sh "$v"',
    "bash deploy.sh V",
    "bash deploy.sh V && echo $(( $1 + 1 ))",
    'n=V; echo "a[$n]" "x[n]"',
    'n=V; find . -exec sh -c \'echo "$1"\' _ "$n" \\;',
    'for f in V; do sh -c -e \'echo "$1"\' _ "$f"; done',
    'n=V; coproc cat; echo "$n"',
    "read -r n < count.txt; (( n > 1 )); echo V",
]
EXECUTED = [
    "x=abc; n=V; echo ${x:n}",
    "n=V; echo $[n]",
    "n=V; [[ -v $n ]]",
    "n=V; declare -n r=$n; echo $r",
    "m=V; n=$m; (( n ))",
    "m=V; declare -i n; n=$m",
    "read n <<< V; (( n > 1 ))",
    "mapfile -t a <<< V; (( a[0] ))",
    "echo V | while read n; do (( n )); done",
    "for n in V; do (( n )); done",
    "set -- V; echo $(( $1 ))",
    "arr=(V); (( arr[0] ))",
    "f() { echo $(( $1 )); }; f V",
    "n=$(echo V); echo $((n))",
    "printf -v n %s V; (( n ))",
    "bash -c 'echo $(( $1 ))' _ V",
    *NESTED,
]


@pytest.mark.parametrize("command", EVALUATED)
def test_evaluated_value_is_one_error(command: str) -> None:
    """The message names the position and the fix."""
    (problem,) = problems_of(command)
    assert (problem.id, problem.severity) == ("variable-in-code", "error")
    assert problem.message.startswith(f"`{V}` reaches `")
    assert problem.help


@pytest.mark.parametrize("command", SAFE)
def test_common_commands_are_accepted(command: str) -> None:
    """Counts, checked values, printed text, code that gets its values as arguments."""
    assert problems_of(command) == ()


@pytest.mark.parametrize("shell", BASH, ids=lambda shell: Path(shell).name)
@pytest.mark.parametrize("command", EXECUTED)
def test_bash_executes_the_rejected_value(command: str, shell: str, tmp_path: Path) -> None:
    """Although the value is quoted correctly."""
    assert command in EVALUATED
    run(shell, re.sub(r"\bV\b", lambda _: f"'{PAYLOAD}'", command), tmp_path)
    assert (tmp_path / "pwned").exists()


def test_nested_code_beyond_the_limit_is_an_error() -> None:
    """Code that cannot be analysed is never accepted."""
    (problem,) = problems_of(f"n=V; {'eval ' * 9} '$n'")
    assert (problem.severity, "too complex" in problem.message) == ("error", True)


def test_too_many_reserved_words_are_an_error() -> None:
    """Code that cannot be analysed is never accepted."""
    (problem,) = problems_of(f"n=V; {'{ ' * 200} ((n)); {'}; ' * 200}")
    assert (problem.severity, "too complex" in problem.message) == ("error", True)


@pytest.mark.parametrize("check", ["case $n in ''|*[!0-9]*) exit 2;; esac", "[[ $n =~ ^[0-9]+$ ]] || exit 1"])
def test_named_check_removes_the_error(check: str) -> None:
    """Only for the checked variable."""
    assert problems_of(f"n=V; {check}; echo $((n))") == ()
    assert len(problems_of(f"m=V; {check}; echo $((m))")) == 1


@pytest.mark.parametrize("opening", ["$((", "${x:", "$(", "a=(", "x[", '"$(', "{ read n; "])
def test_deep_nesting_does_not_crash(opening: str) -> None:
    """Code beyond the depth limit gives no warning."""
    assert len(problems_of(f"n=V; {opening * 3000} (( n ))")) <= 1


def test_long_commands_are_analysed_quickly() -> None:
    """Thousands of words, assignments and values in one action."""
    for command in ("sh " + "$n " * 15_000, "n=V; " * 1000, "x=$((n)); " * 4000):
        assert problems_of(f"n=V; (( n )); {command}")
