; Optional and rest parameters, and calls with a list of arguments.
(define (tag name &optional (class "plain") &rest children)
  (string-append "<" name " " class ">" (join children "") "</" name ">"))

(list (tag "p")
      (tag "p" "wide" "a" "b")
      (apply tag (list "b" "bold" (tag "i")))
      (map + (list 1 2) (list 10 20)))
