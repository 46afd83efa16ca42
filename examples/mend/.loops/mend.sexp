; Repair this project until its tests pass: execute, validate, decide, repeat.
; Instead of a model, a list supplies the edits.

(define edits
  '(("slug.py" "\"_\".join" "\"-\".join")
    ("slug.py" "title.split(\" \")" "title.lower().split()")
    ("slug.py" "text[: limit - 1]" "text[:limit]")))

; The executor performs the first edit of its input. Returns a description of the edit.
(define (make-edit edits iteration)
  (if edits
      (apply code:replace (first edits))
      (error 'out-of-edits "no more edits to try")))

(define (run-tests command iteration)
  (system:execute_shell_command (command command) (timeout 60)))

; The controller stops when the tests pass; otherwise it continues with the remaining edits.
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
