; Questions to people: choices that are worked out, a default, a time that is over.
(define drafts (list "short" "long"))
(define chosen (ask "Which draft?" (choices drafts "none") (default "none") (timeout 60)))
(define title (ask (string-append "What is the " chosen " one called?")))
(list chosen title
      (try (ask "Is anybody there?" (timeout 5)) (catch e (get e "kind")))
      (map (ask (string-append item "?") (choices "yes" "no")) '("one" "two")))
