; The same loop for several paths, side by side.
(parallel-map (lambda (path) (get (run-loop "./part-check.yaml" (context (path path))) "captured"))
              '("src" "tests"))
