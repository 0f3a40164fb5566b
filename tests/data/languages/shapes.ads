package Shapes is
   type Colour is (Red, Green, Blue);
   for Colour use (Red => 1, Green => 5, Blue => 200);
   type Small is range 1 .. 100;
   type Money is delta 0.01 digits 12;
   type Word is mod 2 ** 16;
   type Bits is array (0 .. 11) of Boolean with Pack;
   type Variant (Kind : Colour := Red) is record
      Common : Integer;
      case Kind is
         when Red => R : Float;
         when Green => G : Word;
         when Blue => B1, B2 : Long_Long_Integer;
      end case;
   end record;
   type Circle is tagged record
      Radius : Float;
      Tag : Colour;
      Price : Money;
      Flags : Bits;
      V : Variant;
      Name : String (1 .. 7);
   end record;
   type Circle_Access is access all Circle'Class;
   type Unbounded_Array is array (Positive range <>) of Circle_Access;
   procedure Scale (S : in out Circle; By : Small);
   function Area (S : Circle) return Float;
   pragma Export (C, Area, "circle_area");
   Table : Unbounded_Array (1 .. 3);
end Shapes;
