# Completion of %(prog_name)s in bash; `completion.py` fills in the names.
%(complete_func)s() {
    # Join the parts of a word that bash has split at `:` and `=`.
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
    # bash replaces only its own last word, which may be the last part of the joined word.
    local own=${COMP_WORDS[COMP_CWORD]}
    [[ $own == [:=] ]] && own=
    local kept=${words[n]%%"$own"}
    COMPREPLY=()
    while IFS= read -r reply; do
        [[ $reply == "$kept"?* ]] || continue
        reply=${reply#"$kept"}
        case $own in
            # The completion is inserted inside the open quotes.
            \'*) reply=${reply//\'/\'\\\'\'} ;;
            \"*)
                reply=${reply//\\/\\\\}
                reply=${reply//\"/\\\"}
                reply=${reply//\$/\\\$}
                reply=${reply//\`/\\\`}
                ;;
            *) printf -v reply '%%q' "$reply" ;;
        esac
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
