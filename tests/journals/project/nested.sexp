; Loops that wait, maintain and hand over, inside a flow.
(define answers (parallel-map (lambda (word) (get (run-loop "asked" (context (word word))) "status")) '("one" "two")))
(define cycles (get (run-loop "maintained") "terminated_by"))
(list answers cycles (get (run-loop "handed") "captured"))
