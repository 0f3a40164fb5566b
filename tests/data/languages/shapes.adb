package body Shapes is
   procedure Scale (S : in out Circle; By : Small) is
      type Vector is array (1 .. Integer (By)) of Float;
      V : Vector := (others => 1.0);
   begin
      S.Radius := S.Radius * V (1);
      S.Tag := Blue;
   end Scale;
   function Area (S : Circle) return Float is
   begin
      return S.Radius * S.Radius;
   end Area;
end Shapes;
