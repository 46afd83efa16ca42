; Functions that perform an effect or emit a note; the host returns the results.

(define (log-message &rest values)
  (effect:note log (message (join (map to-string values))))
  null)

(define (now)
  (get (effect:perform clock) "time"))

(define (sleep seconds)
  (if (and (number? seconds) (<= 0 seconds 1e9))
      (begin (effect:perform sleep (seconds seconds)) null)
      (error 'type-error "`sleep` takes a number of seconds, 0 or more, not" seconds)))

(define (env name &optional default)
  (if (string? name)
      (let ((value (get (get (effect:perform env (names (list name))) "values") name)))
        (if (null? value) default value))
      (error 'type-error "`env` takes the name of a variable as a string, not" name)))

(define (exit &optional (code 0))
  (if (and (integer? code) (<= 0 code 255))
      (effect:perform exit (code (exact code)))
      (error 'type-error "`exit` takes a code from 0 to 255, not" code)))
