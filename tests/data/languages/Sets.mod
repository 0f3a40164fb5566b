MODULE Sets;
TYPE Day = (Mon, Tue, Wed); Days = SET OF Day; Small = [1..10];
  Rec = RECORD a : INTEGER; d : Days; s : Small; n : POINTER TO Rec; t : ARRAY [0..3] OF CHAR; CASE k : BOOLEAN OF TRUE: x : REAL | FALSE: y : CARDINAL END END;
  F = PROCEDURE (VAR INTEGER, ARRAY OF CHAR) : BOOLEAN;
VAR r : Rec; f : F;
PROCEDURE Use (VAR q : Rec; b : ARRAY OF CHAR) : INTEGER;
BEGIN q.a := HIGH (b); RETURN q.a END Use;
BEGIN r.a := Use (r, "abc") END Sets.
