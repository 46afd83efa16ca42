; Mutual tail calls run in constant memory; `while` and named `let` are loops.
(define (even? n) (if (= n 0) true (odd? (- n 1))))
(define (odd? n) (if (= n 0) false (even? (- n 1))))

(define (digits n)
  (let next ((n n) (found nil))
    (if (< n 10)
        (cons n found)
        (next (quotient n 10) (cons (remainder n 10) found)))))

(define n 3)
(while (> n 0)
  (log-message "left" n)
  (set! n (- n 1)))

(list (even? 10000) (digits 90210) n)
