; Two loops and what they came to; the second gives a fault.
(define (clean paths)
  (run-loop "./part-fix.yaml" (context (paths paths)) (max-iterations 2)))

(define (summary result)
  (list (get result "status") (get result "iterations") (get result "captured")))

(list (summary (clean "src/"))
      (summary (run-loop "./part-fix.yaml" (context (paths "tests/ --strict"))))
      (try (run-loop "./part-broken.yaml")
        (catch fault (get fault "kind"))))
