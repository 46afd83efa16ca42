; Run-time functions for calls of tools and tasks; `frontend/expand/task_calls.py` generates calls of them. Programs
; cannot use these names.

; --- arguments ---------------------------------------------------------------------------------

(define (calls:fits? value type)
  (case type
    (("string") (or (string? value) (symbol? value)))
    (("number") (number? value))
    (("integer") (integer? value))
    (("boolean") (boolean? value))
    (("list") (list? value))
    (("map") (map? value))
    (else true)))

; Convert a float with an integral value to an integer.
(define (calls:whole value) (if (float? value) (exact value) value))

(define (calls:type-words type)
  (get (dict (string "a string") (number "a number") (integer "a whole number")
             (boolean "true or false") (list "a list") (map "a map"))
       type "something else"))

(define (calls:shown value)
  (let* ((bare (to-string value))
         (text (if (string? value) (string-append "\"" bare "\"") bare)))
    (if (> (string-length text) 200)
        (string-append (substring text 0 200) "…")
        text)))

; Check one argument against its parameter. An omitted argument is null.
(define (calls:argument who parameter value)
  (let* ((type (get parameter "type"))
         (given (if (eq? value null) (get parameter "default") value)))
    (if (if (eq? given null)
            (or (not (get parameter "required")) (equal? type "any"))
            (calls:fits? given type))
        (if (equal? type "integer") (calls:whole given) given)
        (calls:converted who parameter given))))

; Convert an argument of another type: `nil` counts as omitted if the parameter is optional, and a list of
; (name value) pairs becomes a map. A fault if there is no conversion.
(define (calls:converted who parameter given)
  (let ((type (get parameter "type")))
    (cond
      ((and (eq? given nil) (not (get parameter "required"))) (get parameter "default"))
      ((and (equal? type "map") (list? given) (every? calls:pair? given)) (from-entries given))
      (else
       (error 'type-error
         (string-append "`" (get parameter "name") "` of `" who "` must be "
                        (calls:type-words type) ", not " (calls:shown given)))))))

; A map of the arguments by name, without omitted arguments.
(define (calls:arguments who parameters values)
  (loop ((parameters parameters) (values values) (arguments (dict)))
    (if parameters
        (let* ((parameter (first parameters))
               (value (calls:argument who parameter (first values))))
          (recur (rest parameters) (rest values)
                 (if (if (eq? value null) (not (get parameter "required")) false)
                     arguments
                     (put arguments (get parameter "name") value))))
        arguments)))

; --- tools -------------------------------------------------------------------------------------

; The value in a tool's result, or a fault with the tool's error.
(define (calls:tool who result)
  (let ((problem (get result "error")))
    (if problem (calls:fail who problem) (get result "value"))))

(define (calls:fail who problem)
  (error (dict (kind (get problem "kind" "tool-failed"))
               (message (string-append "`" who "`: " (get problem "message")))
               (details (get problem "details" (dict))))))

; The result of a tool that runs a command: a ValidationResult that is also a TaskResult.
(define (calls:shell _ result)
  (let* ((problem (calls:shell-problem result))
         (printed (dict (stdout (get result "output")) (stderr (get result "stderr"))
                        (exit_code (get result "exit_code"))))
         (validation (if problem (put printed "error" problem) printed)))
    (merge validation (calls:task-result printed problem))))

; Status, content and notes of a finished command.
(define (calls:task-result printed problem)
  (let ((code (get printed "exit_code")))
    (if (and (not problem) (equal? code 0))
        (dict (status "COMPLETE") (content (get printed "stdout")) (notes printed))
        (dict (status "FAILED") (content (get printed "stdout"))
              (notes
                (put printed "error"
                  (dict (type "TASK_FAILURE") (reason "subtask_failure")
                        (message (or problem (string-append "exit code " code)))
                        (details (dict)))))))))

(define (calls:shell-problem result)
  (cond
    ((get result "error") (get (get result "error") "message"))
    ((equal? (get result "timed_out") "action")
     (string-append "timed out after " (/ (get result "limit_ms") 1000) " s"))
    ((get result "timed_out") "the run's time limit was reached")
    ((get result "signal") (string-append "ended by " (get result "signal")))
    (else null)))

; The paths of the files that a memory search found, best match first.
(define (calls:found who result)
  (let ((problem (get result "error")))
    (if problem
        (calls:fail who problem)
        (map (lambda (match) (get match "path")) (get result "matches")))))

; --- tasks -------------------------------------------------------------------------------------

(define (calls:task who result)
  (let ((problem (get result "error")))
    (if problem (calls:fail who problem) (get result "result"))))

; Check the files of a task: a list of paths, or null.
(define (calls:files who files)
  (cond
    ((eq? files null) null)
    ((and (list? files) (every? calls:path? files)) files)
    (else
     (error 'type-error
       (string-append "`files` of `" who "` must be a list of paths, not " (calls:shown files))))))

(define (calls:path? item)
  (or (string? item) (symbol? item)))

(define (calls:context who settings)
  (calls:settings who "context" settings
    (list "inherit_context" "accumulate_data" "accumulation_format" "fresh_context")))

(define (calls:history_config who settings)
  (calls:settings who "history_config" settings
    (list "use_session_history" "history_turns_to_include" "record_in_session_history")))

; Check settings (a map or a list of (name value) pairs) and return a map of them.
(define (calls:settings who what settings known)
  (cond
    ((eq? settings null) null)
    ((map? settings) (calls:known-settings who what settings known))
    ((and (list? settings) (every? calls:pair? settings))
     (calls:known-settings who what
       (reduce
         (lambda (made pair)
           (if (member (second pair) '(nil null ())) made (put made (first pair) (second pair))))
         (dict) settings)
       known))
    (else
     (error 'type-error
       (string-append "`" what "` of `" who "` must be a map of settings, not " (calls:shown settings))))))

(define (calls:pair? item)
  (and (list? item) (= (length item) 2) (or (symbol? (first item)) (string? (first item)))))

(define (calls:known-settings who what settings known)
  (for-each
    (lambda (key)
      (if (member key known)
          null
          (error 'unknown-setting
            (string-append "`" what "` of `" who "` has no setting `" key "`; its settings are "
                           (join known ", ")))))
    (keys settings))
  settings)

; --- people ------------------------------------------------------------------------------------

; The answer to a question; a fault if there is none before the timeout.
(define (calls:ask question choices default timeout)
  (let ((offered (calls:choices choices)))
    (if (or (string? question) (symbol? question))
        null
        (error 'type-error (string-append "a question must be a string, not " (calls:shown question))))
    (if (or (eq? default null) (calls:choice? default))
        null
        (error 'type-error (string-append "the default of a question must be a string, not "
                                          (calls:shown default))))
    (if (and offered (not (eq? default null)) (not (member (to-string default) offered)))
        (error 'unknown-choice
          (string-append "the default `" (to-string default) "` is not one of the choices: "
                         (join offered ", ")))
        null)
    (if (or (eq? timeout null) (and (number? timeout) (< 0 timeout) (<= timeout 1e9)))
        null
        (error 'type-error
          (string-append "the timeout of a question must be a number of seconds above 0, not "
                         (calls:shown timeout))))
    (let* ((result (effect:perform ask
                     (question (to-string question))
                     (choices (if offered offered null))
                     (default (if (eq? default null) null (to-string default)))
                     (timeout_s timeout)))
           (problem (get result "error")))
      (cond
        (problem (calls:fail "ask" problem))
        ((get result "timed_out") (error 'timeout "no answer in time" (to-string question)))
        (else (get result "output"))))))

; Check the choices of a question and return a list of strings; nested lists are flattened.
(define (calls:choices choices)
  (if (eq? choices null)
      ()
      (let ((offered (flatten choices)))
        (for-each
          (lambda (choice)
            (if (calls:choice? choice)
                null
                (error 'type-error (string-append "a choice must be a string, not " (calls:shown choice)))))
          offered)
        (let ((texts (map to-string offered)))
          (if (= (length (unique texts)) (length texts))
              texts
              (error 'type-error (string-append "a choice occurs twice: " (join texts ", "))))))))

(define (calls:choice? value)
  (or (symbol? value) (and (string? value) (not (equal? (trim value) "")))))
