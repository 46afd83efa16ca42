; Macros of the loop forms. `frontend/expand/loop_forms.py` reads the clauses of a loop form and passes their
; expressions, with their checks, in the order of the macro's operands.
; A phase has the name of the variable that holds its function; states and events use the same name.

; --- shared by both loops ----------------------------------------------------------------------

; The frame of a loop. `loop:around` is true while a loop runs. `inner` is the name of a nested loop and null
; for the outermost loop; notes contain it.
(define-syntax loop:within
  (syntax-rules ()
    ((_ name inner body)
     (let* ((around loop:around)
            (inner (if around name null)))
       (effect:note loop_start (loop name))
       (set! loop:around true)
       (try body (finally (set! loop:around around)))))))

; Run one phase: emit `state_enter` and call the phase. Put the phase and the iteration before the message of a
; fault, unless a nested loop has already added the same text.
(define-syntax loop:run
  (syntax-rules ()
    ((_ inner name iteration call)
     (begin
       (effect:note state_enter (loop inner) (state name) (iteration iteration))
       (try call
         (catch fault
           (let ((place (string-append "in the " name ", iteration " iteration ": "))
                 (message (get fault "message")))
             (if (starts-with? message place)
                 (error fault)
                 (error (put fault "message" (string-append place message)))))))))))

; The iteration limit, checked before the first phase.
(define-syntax loop:maximum
  (syntax-rules ()
    ((_ loop value)
     (let ((maximum value))
       (if (if (integer? maximum) (>= maximum 0) false)
           maximum
           (error 'bad-count
             (string-append "`max-iterations` of `" loop "` must be a whole number, 0 or more, not "
                            (loop:shown maximum))))))))

; A command, checked before the first phase.
(define-syntax loop:command
  (syntax-rules ()
    ((_ loop value)
     (let ((command value))
       (if (string? command)
           command
           (error 'type-error
             (string-append "`test-command` of `" loop "` must be a string, not "
                            (loop:shown command))))))))

; The text of a value in a message, at most 300 characters.
(define-syntax loop:shown
  (syntax-rules ()
    ((_ value)
     (let ((text (to-string value)))
       (if (> (string-length text) 300)
           (string-append (substring text 0 300) "…")
           text)))))

; Check the controller's decision: `(continue x)` or `(stop x)`.
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
                                    ": a decision must be (continue value) or (stop value), not "
                                    (loop:shown decision) (loop:quoted decision))))))))))

; Help for a decision that begins with a string instead of a symbol.
(define-syntax loop:quoted
  (syntax-rules ()
    ((_ decision)
     (if (if (list? decision) (if (= (length decision) 2) (member (first decision) (list "continue" "stop")) false) false)
         (string-append "; write a symbol instead of the string: (list '" (first decision) " …)")
         ""))))

; Apply a decision: end the loop with the value of `stop`, or start the next iteration.
(define-syntax loop:act
  (syntax-rules ()
    ((_ inner decision iteration first-phase (stop value) again)
     (begin
       (effect:note evaluate
         (loop inner) (state "controller") (type "decision")
         (verdict (symbol->string (first decision)))
         (details (dict (iteration iteration))))
       (if (eq? (first decision) 'stop)
           (let ((value (second decision)))
             (effect:note loop_complete
               (loop inner) (final_state "controller") (iterations iteration)
               (status "success") (terminated_by "stop"))
             value)
           (begin
             (effect:note route (loop inner) (from "controller") (to first-phase) (verdict "continue"))
             again))))))

; The end of a loop that has reached its iteration limit: emit `loop_complete`, return `result`.
(define-syntax loop:ran-out
  (syntax-rules ()
    ((_ inner maximum result)
     (begin
       (effect:note loop_complete
         (loop inner) (final_state "controller") (iterations maximum)
         (status "limit") (terminated_by "max_iterations"))
       result))))

; --- iterative-loop ----------------------------------------------------------------------------

(define-syntax loops:iterative-loop
  (syntax-rules ()
    ((_ name max-iterations initial-input test-command execute validate control place)
     (let* ((maximum max-iterations)
            (start initial-input)
            (command test-command)
            (executor execute)
            (validator validate)
            (controller control))
       (loop:within name inner
         (loop ((iteration 1) (input start) (result nil))
           (if (> iteration maximum)
               (loop:ran-out inner maximum result)
               (let* ((executed (loop:run inner "executor" iteration (executor input iteration)))
                      (validated (loop:run inner "validator" iteration (validator command iteration)))
                      (decision
                        (loop:decided iteration place
                          (loop:run inner "controller" iteration
                            (controller executed validated input iteration)))))
                 (loop:act inner decision iteration "executor" (stop value)
                   (recur (+ iteration 1) (second decision) executed))))))))))

; --- director-evaluator-loop -------------------------------------------------------------------

(define-syntax loops:director-evaluator-loop
  (syntax-rules ()
    ((_ name max-iterations initial-director-input direct execute evaluate control place)
     (let* ((maximum max-iterations)
            (start initial-director-input)
            (director direct)
            (executor execute)
            (evaluator evaluate)
            (controller control)
            (outside *loop-config*))
       (set! *loop-config*
         (dict ("max-iterations" maximum) ("initial-director-input" start)))
       (try
         (loop:within name inner
           (loop ((iteration 1) (input start) (result nil))
             (if (> iteration maximum)
                 (loop:ran-out inner maximum result)
                 (let* ((plan (loop:run inner "director" iteration (director input iteration)))
                        (executed (loop:run inner "executor" iteration (executor plan iteration)))
                        (feedback
                          (loop:run inner "evaluator" iteration
                            (evaluator executed plan iteration)))
                        (decision
                          (loop:decided iteration place
                            (loop:run inner "controller" iteration
                              (controller feedback plan executed iteration)))))
                   (loop:act inner decision iteration "director" (stop value)
                     (recur (+ iteration 1) (second decision) executed))))))
         (finally (set! *loop-config* outside)))))))
