; Higher-order map functions.

(define (update map key function)
  (put map key (function (get map key))))
