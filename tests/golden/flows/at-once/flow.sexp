; Calls at once: over a list, inside one another, with a variable that all see, and with what goes wrong in some.
(define finished 0)

(define (visit place)
  (try (begin
         (sleep 0.1)
         (when (= place 3) (error 'closed place "is closed"))
         (* place place))
    (finally
      (set! finished (+ finished 1))
      (log-message "left" place))))

(define squares
  (parallel-map (try (visit item) (catch fault (get-field fault 'message))) '(1 2 3)))

(define table
  (parallel-map
    (let ((row item))
      (parallel-map (begin (sleep 0.1) (+ row item)) (list 1 2)))
    '(10 20)))

(define each parallel-map)
(log-message squares table finished (each abs '(-1 1)))
(parallel-map visit '(4 3 5))
