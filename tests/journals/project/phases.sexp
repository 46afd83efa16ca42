; Both loop forms, with effects in their phases.
(define (run command) (get-field (system:execute_shell_command command) 'exit_code))
(define repaired
  (iterative-loop
    (max-iterations 4) (initial-input 1) (test-command "make test")
    (executor (lambda (input n) (log-message "iteration" n) (* input 2)))
    (validator (lambda (command n) (run command)))
    (controller (lambda (result code input n) (if (= code 0) (list 'stop result) (list 'continue result))))))
(define planned
  (director-evaluator-loop
    (max-iterations 3) (initial-director-input '(fix))
    (director (lambda (input n) (append input (list n))))
    (executor (lambda (plan n) (sleep 0.5) (list 'did plan)))
    (evaluator (lambda (result plan n) (if (= n 2) 'good 'bad)))
    (controller (lambda (feedback plan result n)
      (if (eq? feedback 'good) (list 'stop result) (list 'continue plan))))))
(list repaired planned)
