; What a report says.
(define mark ": error:")
(define (count-errors report) (length (regex-find-all mark report)))
(define (shout words &optional (end "!")) (string-append (upper words) end))
(define (rest seconds)
  (try (begin (sleep seconds) (< seconds 20))
    (catch fault (rest 1))))
