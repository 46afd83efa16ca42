; Shared definitions: a model changes files of the project, but no tests and no files outside of it.

(defatom code:change
  (description "Changes files of the project.")
  (params (goal string))
  (system
    "You change programs carefully. You see the relevant files. Answer with the complete new text of each file that you change, and change only what the goal needs. Never change tests.")
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

; Write a file. Its path comes from a model, so it is checked first.
(define (write-file file)
  (let ((path (get file "path")))
    (if (or (contains? path "..") (starts-with? path "/") (starts-with? path "tests/"))
        (error 'bad-path "the model may not write" path)
        (system:write_file path (get file "content")))))

; Let a model change files for a goal. `files` are the paths that it sees. Returns the TaskResult.
(define (change goal files)
  (let ((result (code:change goal (files files))))
    (for-each write-file (get-field result "parsedContent.files"))
    result))

; Run the tests. Returns a ValidationResult.
(define (run-tests command)
  (system:execute_shell_command command (timeout 120)))
