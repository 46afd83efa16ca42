; Works on this project with a model until its tests pass: a model changes files, the tests run, and a
; model says what came of it and what to do next.

(defatom code:change
  (description "Changes files of the project.")
  (params (goal string))
  (system
    "You change programs with care. You see the files that matter; answer with the whole new text of each file that you change, and change no more than the goal needs. Never change tests.")
  (instructions "{{goal}}")
  (output_format
    (type "json")
    (schema
      "{\"type\": \"object\",
        \"properties\": {
          \"summary\": {\"type\": \"string\"},
          \"files\": {\"type\": \"array\", \"items\": {
            \"type\": \"object\",
            \"properties\": {\"path\": {\"type\": \"string\"}, \"content\": {\"type\": \"string\"}},
            \"required\": [\"path\", \"content\"]}}},
        \"required\": [\"summary\", \"files\"]}")
    (repair true)))

(define max-rounds 5)
(define goal "Make the tests in tests/ pass.")

; A model names the paths, so they are looked at before anything is written.
(define (write-file file)
  (let ((path (get file "path")))
    (if (or (contains? path "..") (starts-with? path "/") (starts-with? path "tests/"))
        (error 'bad-path "the model may not write" path)
        (system:write_file path (get file "content")))))

(define (execute input iteration)
  (let* ((result (code:change (get-field input 'prompt) (files (get-field input 'files))))
         (changed (get-field result "parsedContent.files")))
    (for-each write-file changed)
    result))

(define (check command iteration)
  (system:execute_shell_command command (timeout 120)))

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
         (found (get-field analysis 'parsedContent)))
    (cond
      ((eq? (get-field analysis 'status) "FAILED") (list 'stop analysis))
      ((get-field found 'success)
       (list 'stop (dict (iterations iteration) (analysis (get-field found 'analysis)))))
      (else
        (list 'continue
          (dict (prompt (get-field found 'next_input))
                (files
                  (unique (append (get-field input 'files) (get-field found 'new_files))))))))))

(iterative-loop
  (max-iterations max-rounds)
  (initial-input (dict (prompt goal) (files (list "words.py" "tests/test_words.py"))))
  (test-command "pytest -q")
  (executor execute)
  (validator check)
  (controller decide))
