"""The script that `--install-completion` and `--show-completion` give bash.

bash takes words apart at `:` and `=`, where the names and parameters of tasks have them; typer's script
leaves it at that. What may stand next is asked of `llc` itself, by typer's protocol, as in other shells.
"""

from __future__ import annotations

from typer import _completion_shared

# typer fills in the names with `%`.
BASH = r"""
%(complete_func)s() {
    # Words as llc has them: what no blank stands between is one.
    local words=() rest=$COMP_LINE word reply i n=-1
    for ((i = 0; i <= COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        if ((n < 0)) || [[ $rest == [[:space:]]* ]]; then
            words[++n]=$word
        else
            words[n]+=$word
        fi
        rest=${rest#"${rest%%%%[![:space:]]*}"}
        rest=${rest#"$word"}
    done
    # bash puts a reply in the place of its own last word, which may be the end of ours.
    local own=${COMP_WORDS[COMP_CWORD]}
    [[ $own == [:=] ]] && own=
    local kept=${words[n]%%"$own"}
    COMPREPLY=()
    while IFS= read -r reply; do
        [[ $reply == "$kept"?* ]] || continue
        reply=${reply#"$kept"}
        [[ $own == [\"\']* ]] || printf -v reply '%%q' "$reply"
        COMPREPLY+=("$reply")
    done < <(
        COMP_WORDS=$(printf '%%s\n' "${words[@]}") COMP_CWORD=$n %(autocomplete_var)s=complete_bash \
            "$1" 2>/dev/null
    )
    if [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *[=/] ]]; then
        compopt -o nospace 2>/dev/null
    fi
}

complete -o default -F %(complete_func)s %(prog_name)s
"""

_completion_shared._completion_scripts["bash"] = BASH
