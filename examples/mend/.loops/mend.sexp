; Repairs this project until its tests pass: execute, validate, decide, and go round.
; Where a model would write the next edit, this flow takes it from a list.

(define edits
  '(("slug.py" "\"_\".join" "\"-\".join")
    ("slug.py" "title.split(\" \")" "title.lower().split()")
    ("slug.py" "text[: limit - 1]" "text[:limit]")))

; The executor makes the first edit of its input and tells of it.
(define (make-edit edits iteration)
  (if edits
      (apply code:replace (first edits))
      (error 'out-of-edits "no edit is left to try")))

(define (run-tests command iteration)
  (system:execute_shell_command (command command) (timeout 60)))

; The controller stops when the tests pass, and else goes on with the other edits.
(define (decide result tests edits iteration)
  (if (= (get-field tests 'exit_code) 0)
      (list 'stop (dict (edits iteration) (last result)))
      (begin
        (log-message "after" result "- still failing:" (join (split (code:failures) "\n") ", "))
        (list 'continue (rest edits)))))

(iterative-loop
  (max-iterations 5)
  (initial-input edits)
  (test-command "pytest -q")
  (executor make-edit)
  (validator run-tests)
  (controller decide))
