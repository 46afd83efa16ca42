; Map functions that call functions.

(define (update map key function)
  (put map key (function (get map key))))
