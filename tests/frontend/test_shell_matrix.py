"""Every source of a variable with every sink: an accepted template never executes a value.

Each template is a source, which assigns the value V to the variable `n`, and a sink, which may execute the
content of `n`. Real shells run each template without an error with values that are code. `LLC_FUZZ` runs all
combinations; the suite runs a part.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from shell_programs import SHELLS, filled_with, run

from llc.frontend.template.template import parse

V = "${captured.v.output}"
SOURCES = [
    "n=V; SINK",
    'n="V"; SINK',
    "n=-V; n=${n#-}; SINK",
    "n=$(echo V); SINK",
    "n=`printf '%s' V`; SINK",
    "n=$(echo V | cat | head -n 1); SINK",
    "u=V; n=$u; SINK",
    "n=${u:-V}; SINK",
    ": ${n:=V}; SINK",
    "export n=V; SINK",
    "set -- V; n=$1; SINK",
    "f() { n=$1; SINK; }; f V",
    "f() { n=$*; SINK; }; f a V",
    "for n in V; do SINK; done",
    "echo V > f; n=$(cat f); SINK",
    "echo V > f; read -r n < f; SINK",
    "echo V | { read -r n; SINK; }",
    "echo V | while read -r n; do SINK; done",
    "read -r n <<EOF\nV\nEOF\nSINK",
    "while read -r n; do SINK; done <<EOF\nV\nEOF",
    "n=$(cat <<EOF\nV\nEOF\n); SINK",
    "case V in *) n=V; SINK;; esac",
    "if n=V; then SINK; fi",
    "(n=V; SINK)",
    "n=$(echo V | sed 's/^ //'); SINK",
    "n=$(echo V | tr a-b a-b); SINK",
    "n=$(echo V | sort | uniq); SINK",
]
BASH_SOURCES = [
    "read -r n <<< V; SINK",
    "printf -v n %s V; SINK",
    "declare n=V; SINK",
    "f() { local n=V; SINK; }; f",
    "mapfile -t n <<< V; SINK",
    "n=(V); SINK",
    "n=$(< <(echo V)); SINK",
    "while read -r n; do SINK; done < <(echo V)",
    "declare -A m=([k]=V); n=${m[k]}; SINK",
    "n=; n+=V; SINK",
    'set -- V; n="${@: -1}"; SINK',
]
SINKS = [
    *("$n", '"$n"', "eval $n", 'eval "$n"', 'eval "echo $n"', "eval echo '$n'", 'sh -c "$n"'),
    *('sh -c "echo $n"', 'sh -c \'echo "$1"\' _ "$n"', "sh -c '$1' _ \"$n\"", 'echo "$n" | sh', "echo $n"),
    *("sh <<END\n$n\nEND\n", 'printf "%s\\n" "$n" | sh -s', 'trap "$n" EXIT', "trap 'eval \"$n\"' EXIT"),
    *("echo $((n))", "echo $((n + 1))", "echo $(( $n ))", 'test "$n" -gt 1', '[ "$n" = x ] && echo y'),
    *(
        "env $n",
        'env sh -c "$n"',
        "command $n",
        "exec $n",
        "timeout 5 $n",
        'nice sh -c "$n"',
        "xargs $n < f0",
    ),
    *('echo "$n" | xargs -n1 sh -c', "echo \"$n\" | xargs -I{} sh -c 'echo {}'", 'echo "$n" | xargs echo'),
    *('find . -maxdepth 0 -exec sh -c "$n" \\;', 'find . -maxdepth 0 -exec echo {} "$n" \\;', "$(echo $n)"),
    *('awk "$n" f0', "awk -v x=\"$n\" 'BEGIN { print x }'", "awk -v x=\"$n\" 'BEGIN { system(x) }'"),
    *('awk "BEGIN { print \\"$n\\" }"', 'sed "$n" f0', 'sed "s/a/$n/" f0', 'sed -n "/$n/p" f0', "echo `$n`"),
    *('python3 -c "$n"', "python3 -c 'import sys; print(sys.argv[1])' \"$n\"", "python3 -c \"print('$n')\""),
    *('alias x="$n"', "export x=$n", "readonly x=$n", "unset x$n", 'cat "$n"', 'cd "$n"', 'printf "$n"'),
    *('printf "%d" "$n"', "exit $n", "shift $n", "umask $n", 'expr "$n" + 1', 'seq "$n"', 'sleep "0$n"'),
    *('echo "$n" > g; . ./g', 'echo "$n" > g; sh g', 'echo "$n" > g; cat g', 'echo "$n" | tee g > h; sh ./g'),
    *("PATH=$n ls", "IFS=$n; echo a", 'git -c alias.x="$n" x', 'sort --compress-program="$n" f0'),
    *(
        "make -s -f - <<END\nx:\n\t$n\nEND\n",
        'echo "$n" | make -f -',
        'tar -cf t f0 -I "$n"',
        'f() { $1; }; f "$n"',
    ),
    *(
        'c=\'eval "$n"\'; eval "$c"',
        "c='$n'; sh -c \"$c\"",
        "echo '$n' > g; . ./g",
        "export n; echo '$n' | sh",
    ),
    *("export n; sh <<'END'\n$n\nEND\n", "export n; find . -maxdepth 0 -exec sh -c '$n' \\;"),
    *("find . -maxdepth 0 $n", "ls $n", 'grep -c "$n" f0', "case $n in a) echo b;; esac", "nohup $n"),
]
BASH_SINKS = [
    *('bash -c "$n"', "((n))", "((x = n))", "[[ $n -gt 1 ]]", "[[ 1 -eq n ]]", "[[ -v $n ]]", 'test -v "$n"'),
    *("let n", 'let "x = n"', "let x=$n", "a=(1 2); echo ${a[$n]}", "a=(1 2); echo ${a[n]}", "a[$n]=1"),
    *('unset "a[$n]"', 'read "$n" <<< 1', 'read -r "a[$n]" <<< 1', 'printf -v "$n" 1', 'declare "$n"'),
    *("declare -i m=$n", "declare -i m; m=$n", 'echo "${!n}"', "x=abc; echo ${x:$n}", "x=abc; echo ${x:0:n}"),
    *(
        "PS4=$n; set -x; :",
        'echo "${n@P}"',
        'compgen -W "$n"',
        'mapfile -C "$n" -c 1 x < f0',
        "[[ $n == a* ]]",
    ),
    *(
        "for ((i = 0; i < n; i++)); do :; done",
        "declare -n r=$n; echo $r",
        'export "$n"',
        'source <(echo "$n")',
    ),
    *(
        "BASH_ENV=$n bash -c :",
        'bash <<< "$n"',
        "declare -A m; m[$n]=1",
        "declare -A m; ((m[$n]++))",
        "exec {x}<$n",
    ),
    *(
        'complete -C "$n" x',
        "coproc $n; wait",
        "echo $[n]",
        'test "$n" -eq 1',
        "[[ $n =~ $n ]]",
        "local -i x=$n",
    ),
    *("c='((n))'; eval \"$c\"", "c='[[ $n -gt 1 ]]'; eval \"$c\"", "export n; bash <<'END'\n((n))\nEND\n"),
    *(
        'hash -p "$n" ls; ls',
        'wait -p "$n"',
        'printf "%(%F)T" "$n"',
        'echo "${n@Q}"',
        'echo "${n^^}" "${n//a/b}"',
    ),
    *(
        'enable -f "$n" x',
        '"$BASH" -c "$n"',
        "PROMPT_COMMAND=$n",
        'history -s "$n"',
        'ulimit -n "$n"',
        "> $n",
    ),
]
TOUCH = ":>pwned"
VALUES = [
    *("touch pwned", TOUCH, f"$({TOUCH})", f"`{TOUCH}`", f"a[$({TOUCH})]", f"a; {TOUCH}", f"x=a[$({TOUCH})]"),
    *(f"a\n{TOUCH}\n", f"'; {TOUCH}; '", f'"; {TOUCH}; "', f"x[$({TOUCH})]=1", f"-va[$({TOUCH})]"),
    *("!touch pwned", 'BEGIN { system("touch pwned") }', "1e touch pwned", "-exec touch pwned ;"),
    *('__import__("os").system("touch pwned")', f"0 + a[$({TOUCH})]", f"x:\n\t{TOUCH}\n", f"END\n{TOUCH}\n"),
    *(
        '"; system("touch pwned"); "',
        "/;1e touch pwned\n#",
        f"EOF\n{TOUCH}\nEOF\n",
        "x'); open('pwned', 'w') #",
    ),
]
TEMPLATES = [
    *((source.replace("SINK", sink), False) for source in SOURCES for sink in SINKS),
    *((source.replace("SINK", sink), True) for source in SOURCES for sink in BASH_SINKS),
    *((source.replace("SINK", sink), True) for source in BASH_SOURCES for sink in SINKS + BASH_SINKS),
]
PARTS = 8
STEP = 1 if os.environ.get("LLC_FUZZ") else 60
BASH = [shell for shell in SHELLS if "bash" in shell]


def executions(template: str, is_bash: bool, folder: Path) -> list[tuple[str, str]]:
    """Shells and values for which an accepted template executes the value."""
    parsed = parse(re.sub(r"\bV\b", lambda _: V, template), kind="shell")
    if any(problem.severity == "error" for problem in parsed.problems):
        return []
    result = []
    for shell in BASH if is_bash else SHELLS:
        for value in VALUES:
            (folder / "f0").write_text("a\n")
            run(shell, filled_with(parsed, value), folder)
            if (folder / "pwned").exists():
                result.append((shell, value))
            for path in folder.iterdir():
                path.unlink()
    return result


@pytest.mark.parametrize("part", range(PARTS))
def test_accepted_template_never_executes_a_value(part: int, tmp_path: Path) -> None:
    assert len(TEMPLATES) > 3000
    for number in range(part * STEP, len(TEMPLATES), PARTS * STEP):
        template, is_bash = TEMPLATES[number]
        assert executions(template, is_bash, tmp_path) == [], template
