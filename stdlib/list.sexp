; List functions that call functions. They go over a list by tail calls, so its length costs no stack,
; and each item's turn comes in the order of the list, once. null counts as the empty list.

(define (map function items &rest more)
  (if (null? more)
      (let next ((items items) (done nil))
        (if (null? items)
            (reverse done)
            (next (rest items) (cons (function (first items)) done))))
      (let next ((columns (apply zip items more)) (done nil))
        (if (null? columns)
            (reverse done)
            (next (rest columns) (cons (apply function (first columns)) done))))))

(define (for-each function items &rest more)
  (if (null? more)
      (let next ((items items))
        (if (null? items)
            nil
            (begin (function (first items)) (next (rest items)))))
      (let next ((columns (apply zip items more)))
        (if (null? columns)
            nil
            (begin (apply function (first columns)) (next (rest columns)))))))

; At the head of a call stands the form; this is its value.
(define (parallel-map function items)
  (effect:parallel function items))

(define (filter function items)
  (let next ((items items) (done nil))
    (cond ((null? items) (reverse done))
          ((function (first items)) (next (rest items) (cons (first items) done)))
          (else (next (rest items) done)))))

(define (reduce function start &rest more)
  (let next ((value (if (null? more) (first start) start))
             (items (if (null? more) (rest start) (first more))))
    (if (null? items)
        value
        (next (function value (first items)) (rest items)))))

(define (fold-right function start items)
  (let next ((value start) (items (reverse items)))
    (if (null? items)
        value
        (next (function (first items) value) (rest items)))))

(define (find function items)
  (let next ((items items))
    (cond ((null? items) null)
          ((function (first items)) (first items))
          (else (next (rest items))))))

(define (any? function items)
  (let next ((items items))
    (cond ((null? items) false)
          ((function (first items)) true)
          (else (next (rest items))))))

(define (every? function items)
  (let next ((items items))
    (cond ((null? items) true)
          ((function (first items)) (next (rest items)))
          (else false))))

; A merge sort, from neighbours upwards. Of two items that are equal the earlier one stays the earlier.
(define (sort items &optional less?)
  (define (merge-two left right done)
    (cond ((null? left) (append (reverse done) right))
          ((null? right) (append (reverse done) left))
          ((less? (first right) (first left)) (merge-two left (rest right) (cons (first right) done)))
          (else (merge-two (rest left) right (cons (first left) done)))))
  (define (merge-neighbours runs done)
    (if (or (null? runs) (null? (rest runs)))
        (append (reverse done) runs)
        (merge-neighbours (cddr runs) (cons (merge-two (first runs) (second runs) nil) done))))
  (define (merge-all runs)
    (cond ((null? runs) nil)
          ((null? (rest runs)) (first runs))
          (else (merge-all (merge-neighbours runs nil)))))
  (cond ((null? less?) (sorted items))
        ((function? items) (sort less? items))
        (else (merge-all (zip items)))))
