; What the loops of this project share: a model changes files, and nothing that it must not.

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

; A model names the paths, so they are looked at before anything is written.
(define (write-file file)
  (let ((path (get file "path")))
    (if (or (contains? path "..") (starts-with? path "/") (starts-with? path "tests/"))
        (error 'bad-path "the model may not write" path)
        (system:write_file path (get file "content")))))

; Has a model change files towards a goal, seeing those; gives the task's result.
(define (change goal files)
  (let ((result (code:change goal (files files))))
    (for-each write-file (get-field result "parsedContent.files"))
    result))

; Runs the tests; gives a ValidationResult.
(define (run-tests command)
  (system:execute_shell_command command (timeout 120)))
