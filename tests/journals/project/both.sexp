; Two effects at the same time.
(parallel-map (lambda (file) (system:execute_shell_command (string-append "sleep 0.3; touch " file))) (list "a" "b"))
