; Change this project with a model until its tests pass: in each iteration a model changes files, the tests
; run, and a model analyses the result and writes the next instructions.

(import "shared/changing.sexp")

(define max-rounds 5)
(define goal "Make the tests in tests/ pass.")

(define (execute input iteration)
  (change (get-field input 'prompt) (get-field input 'files)))

(define (check command iteration)
  (run-tests command))

(define (decide result tests input iteration)
  (let* ((analysis (user:analyze-iteration-structured
                     (prompt (get-field input 'prompt))
                     (executor_status (get-field result 'status))
                     (executor_output (get-field result 'content))
                     (stdout (get-field tests 'stdout))
                     (stderr (get-field tests 'stderr))
                     (exit_code (get-field tests 'exit_code))
                     (iteration iteration)
                     (max_iterations max-rounds)))
         (judgement (get-field analysis 'parsedContent)))
    (cond
      ((eq? (get-field analysis 'status) "FAILED") (list 'stop analysis))
      ((get-field judgement 'success)
       (list 'stop (dict (iterations iteration) (analysis (get-field judgement 'analysis)))))
      (else
        (list 'continue
          (dict (prompt (get-field judgement 'next_input))
                (files
                  (unique (append (get-field input 'files) (get-field judgement 'new_files))))))))))

(iterative-loop
  (max-iterations max-rounds)
  (initial-input (dict (prompt goal) (files (list "words.py" "tests/test_words.py"))))
  (test-command "pytest -q")
  (executor execute)
  (validator check)
  (controller decide))
