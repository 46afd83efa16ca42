; Loops inside a flow, one of them several times at once; and calls at once inside calls at once.
(define checks
  (parallel-map (lambda (path) (get (run-loop "part" (context (path path))) "status")) '("src" "tests" "docs")))
(define table
  (parallel-map (let ((row item)) (parallel-map (begin (sleep 0.1) (+ row item)) '(1 2))) '(10 20)))
(list checks table (get (run-loop "part" (context (path "src")) (max-iterations 1)) "iterations"))
