;; The seven programs of ../programs.py as one writes them in Hy: the same functions in the same order,
;; with Hy's loops where the originals loop, for Hy has no tail calls.
(import functools [reduce])

(defn fib [n] (if (< n 2) n (+ (fib (- n 1)) (fib (- n 2)))))

(defn tak-of [x y z]
  (if (not (< y x)) z (tak-of (tak-of (- x 1) y z) (tak-of (- y 1) z x) (tak-of (- z 1) x y))))
(defn tak [size] (tak-of size (// (* 2 size) 3) (// size 3)))

(defn loop-sum [n]
  (setv i 0 sum 0)
  (while (< i n)
    (setv sum (+ sum i)
          i (+ i 1)))
  sum)

(defn is-safe [queen placed]
  (for [[distance other] (enumerate placed 1)]
    (when (or (= other queen) (= other (+ queen distance)) (= other (- queen distance)))
      (return False)))
  True)
(defn place [n row placed]
  (if (= row 0)
      1
      (do
        (setv sum 0)
        (for [queen (range 1 (+ n 1))]
          (when (is-safe queen placed)
            (+= sum (place n (- row 1) [queen #* placed]))))
        sum)))
(defn queens [n] (place n n []))

(defn words [n]
  (setv counts {})
  (for [i (range n)]
    (setv word (+ "w" (str (% (* i 7) 13))))
    (setv (get counts word) (+ 1 (.get counts word 0))))
  (get counts "w5"))

(defn make-counter []
  (setv n 0)
  (fn [] (nonlocal n) (+= n 1) n))
(defn counter [size]
  (setv count (make-counter))
  (for [_ (range 1 size)] (count))
  (count))

(defn pipe [n]
  (reduce (fn [a b] (+ a b))
          (map (fn [x] (* x x)) (filter (fn [x] (= (% x 3) 0)) (range n)))
          0))
