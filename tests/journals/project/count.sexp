; Uses more fuel than it is given, and continues with more.
(define (count n) (if (= n 0) 'done (begin (log-message n) (count (- n 1)))))
(count 40)
