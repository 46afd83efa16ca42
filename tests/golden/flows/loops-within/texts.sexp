(define (first-word text)
  (first (split text)))
