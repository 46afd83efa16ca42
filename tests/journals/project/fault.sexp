(define (strict x) (if (= x 3) (error 'too-large "three is too many" x) (/ 10 x)))
(log-message (try (strict 0) (catch fault (get fault "kind"))))
(list (strict 5) (strict 3))
