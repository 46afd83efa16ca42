; What goes wrong: caught, passed on, and in the end what ended the run.
(define (check x)
  (try (/ 10 x)
    (catch fault
      (log-message "caught" (get-field fault 'kind))
      0)
    (finally (log-message "checked" x))))

(define (strict x)
  (if (= x 3)
      (error 'too-large "three is too many")
      (check x)))

(list (strict 5) (strict 0) (strict 3))
