; The same task with a director: a model plans one step at a time, a model performs it, the tests run,
; and a model judges the result.

(import "shared/changing.sexp")

(define goal "Make the tests in tests/ pass; `pytest -q` runs them.")
(define sources '("words.py" "tests/test_words.py"))

; Returns a DevelopmentPlan. Without a plan the loop cannot continue, so a failed task is an error.
(define (direct feedback iteration)
  (let ((planned (user:plan-development (goal goal)
                                        (feedback feedback)
                                        (iteration iteration)
                                        (files sources))))
    (if (eq? (get-field planned 'status) "FAILED")
        (error 'no-plan (get-field planned "notes.error.message") planned)
        (get-field planned 'parsedContent))))

(define (execute plan iteration)
  (change (get-field plan 'instructions) (get-field plan 'files)))

; The plan may contain a test command. It is ignored, because a model wrote it.
(define (evaluate result plan iteration)
  (let ((tests (run-tests "pytest -q")))
    (user:evaluate-result
      (plan plan)
      (result (get-field result 'content))
      (stdout (get-field tests 'stdout))
      (stderr (get-field tests 'stderr))
      (exit_code (get-field tests 'exit_code)))))

; The status of a FeedbackResult is GOOD, REVISE or ABORT.
(define (decide judged plan result iteration)
  (let ((feedback (get-field judged 'parsedContent)))
    (cond
      ((eq? (get-field judged 'status) "FAILED") (list 'stop judged))
      ((eq? (get-field feedback 'status) "REVISE")
       (list 'continue (get-field feedback 'next_prompt)))
      (else (list 'stop (put feedback "iterations" iteration))))))

(director-evaluator-loop
  (max-iterations 5)
  (initial-director-input "")
  (director direct)
  (executor execute)
  (evaluator evaluate)
  (controller decide))
