; What functions share: a box for what changes, a copy for what does not.
(define (make-account owner)
  (define balance 0)
  (define (deposit amount) (set! balance (+ balance amount)) balance)
  (define (statement) (list owner balance (now)))
  (list deposit statement))

(define account (make-account (env "USER" "nobody")))
(define deposit (first account))
(map deposit (list 10 20 30))
((second account))
