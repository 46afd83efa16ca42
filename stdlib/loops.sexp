; The loop forms, said in the language. `frontend/expand/loop_forms.py` reads their clauses and puts the
; expressions in the order of the macros' operands, each with the check it needs.
; The names of phases are those of the variables called, so states and events have them too.

; --- what both loops share ---------------------------------------------------------------------

; One phase: say that it begins, call it, and say which it was if it fails. What a loop within it
; has said in the same words already is not said again.
(define-syntax loop:run
  (syntax-rules ()
    ((_ name iteration call)
     (begin
       (effect:note state_enter (state name) (iteration iteration))
       (try call
         (catch fault
           (let ((place (string-append "in the " name ", iteration " iteration ": "))
                 (message (get fault "message")))
             (if (starts-with? message place)
                 (error fault)
                 (error (put fault "message" (string-append place message)))))))))))

; A whole number of rounds, checked before anything runs.
(define-syntax loop:maximum
  (syntax-rules ()
    ((_ loop value)
     (let ((maximum value))
       (if (if (integer? maximum) (>= maximum 0) false)
           maximum
           (error 'bad-count
             (string-append "`max-iterations` of `" loop "` is a whole number, 0 or more, not "
                            (loop:shown maximum))))))))

; A command, checked before anything runs.
(define-syntax loop:command
  (syntax-rules ()
    ((_ loop value)
     (let ((command value))
       (if (string? command)
           command
           (error 'type-error
             (string-append "`test-command` of `" loop "` is a string, not "
                            (loop:shown command))))))))

; A value for a message.
(define-syntax loop:shown
  (syntax-rules ()
    ((_ value)
     (let ((text (to-string value)))
       (if (> (string-length text) 300)
           (string-append (substring text 0 300) "…")
           text)))))

; What the controller decided, checked: `(continue x)` or `(stop x)`.
(define-syntax loop:decided
  (syntax-rules ()
    ((_ iteration place call)
     (let ((decision call))
       (if (if (list? decision)
               (if (= (length decision) 2)
                   (if (eq? (first decision) 'continue) true (eq? (first decision) 'stop))
                   false)
               false)
           decision
           (error
             (dict (kind "bad-decision") (span place)
                   (message
                     (string-append "in the controller, iteration " iteration
                                    ": a decision is (continue value) or (stop value), not "
                                    (loop:shown decision) (loop:quoted decision))))))))))

; What to do about a decision whose word is a string.
(define-syntax loop:quoted
  (syntax-rules ()
    ((_ decision)
     (if (if (list? decision) (if (= (length decision) 2) (member (first decision) (list "continue" "stop")) false) false)
         (string-append "; its word is a symbol: (list '" (first decision) " …)")
         ""))))

; Act on a decision: stop with its value, or go on. `result` is what a loop gives that runs out.
(define-syntax loop:act
  (syntax-rules ()
    ((_ decision iteration first-phase (stop value) again)
     (begin
       (effect:note evaluate
         (state "controller") (type "decision")
         (verdict (symbol->string (first decision)))
         (details (dict (iteration iteration))))
       (if (eq? (first decision) 'stop)
           (let ((value (second decision)))
             (effect:note loop_complete
               (final_state "controller") (iterations iteration)
               (status "success") (terminated_by "stop"))
             value)
           (begin
             (effect:note route (from "controller") (to first-phase) (verdict "continue"))
             again))))))

(define-syntax loop:ran-out
  (syntax-rules ()
    ((_ maximum result)
     (begin
       (effect:note loop_complete
         (final_state "controller") (iterations maximum)
         (status "limit") (terminated_by "max_iterations"))
       result))))

; --- iterative-loop ----------------------------------------------------------------------------

(define-syntax loops:iterative-loop
  (syntax-rules ()
    ((_ max-iterations initial-input test-command execute validate control place)
     (let* ((maximum max-iterations)
            (start initial-input)
            (command test-command)
            (executor execute)
            (validator validate)
            (controller control))
       (effect:note loop_start (loop "iterative-loop"))
       (loop ((iteration 1) (input start) (result nil))
         (if (> iteration maximum)
             (loop:ran-out maximum result)
             (let* ((executed (loop:run "executor" iteration (executor input iteration)))
                    (validated (loop:run "validator" iteration (validator command iteration)))
                    (decision
                      (loop:decided iteration place
                        (loop:run "controller" iteration
                          (controller executed validated input iteration)))))
               (loop:act decision iteration "executor" (stop value)
                 (recur (+ iteration 1) (second decision) executed)))))))))

; --- director-evaluator-loop -------------------------------------------------------------------

(define-syntax loops:director-evaluator-loop
  (syntax-rules ()
    ((_ max-iterations initial-director-input direct execute evaluate control place)
     (let* ((maximum max-iterations)
            (start initial-director-input)
            (director direct)
            (executor execute)
            (evaluator evaluate)
            (controller control)
            (outside *loop-config*))
       (effect:note loop_start (loop "director-evaluator-loop"))
       (set! *loop-config*
         (dict ("max-iterations" maximum) ("initial-director-input" start)))
       (try
         (loop ((iteration 1) (input start) (result nil))
           (if (> iteration maximum)
               (loop:ran-out maximum result)
               (let* ((plan (loop:run "director" iteration (director input iteration)))
                      (executed (loop:run "executor" iteration (executor plan iteration)))
                      (feedback
                        (loop:run "evaluator" iteration (evaluator executed plan iteration)))
                      (decision
                        (loop:decided iteration place
                          (loop:run "controller" iteration
                            (controller feedback plan executed iteration)))))
                 (loop:act decision iteration "director" (stop value)
                   (recur (+ iteration 1) (second decision) executed)))))
         (finally (set! *loop-config* outside)))))))
