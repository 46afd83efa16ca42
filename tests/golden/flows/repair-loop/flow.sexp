; Executes, validates, decides; the third time round it is good.
(define wanted 8)

(iterative-loop
  (max-iterations 5)
  (initial-input 1)
  (test-command "make test")
  (executor
    (lambda (input iteration)
      (log-message "iteration" iteration "works on" input)
      (* input 2)))
  (validator
    (lambda (command iteration)
      (sleep 0.5)
      (dict (stdout command) (exit_code (if (< iteration 3) 1 0)))))
  (controller
    (lambda (result validation input iteration)
      (if (and (= (get-field validation 'exit_code) 0) (= result wanted))
          (list 'stop (dict (result result) (iterations iteration) (ended (now))))
          (list 'continue result)))))
