; The same work with a director: a model plans one step at a time, a model carries it out, the tests run,
; and a model judges whether it is good.

(import "shared/changing.sexp")

(define goal "Make the tests in tests/ pass; `pytest -q` runs them.")
(define sources '("words.py" "tests/test_words.py"))

; A plan is a DevelopmentPlan; where there is none, nothing can go on.
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

; The plan may name a command that checks it; what a model writes is not run here.
(define (evaluate result plan iteration)
  (let ((tests (run-tests "pytest -q")))
    (user:evaluate-result
      (plan plan)
      (result (get-field result 'content))
      (stdout (get-field tests 'stdout))
      (stderr (get-field tests 'stderr))
      (exit_code (get-field tests 'exit_code)))))

; A FeedbackResult is GOOD, or to be REVISEd, or hopeless: ABORT.
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
