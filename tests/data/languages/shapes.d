module shapes;
enum Colour : ubyte { red = 1, blue = 200 }
struct Point { float x, y; Colour colour; string name; int[] items; int[string] map; }
class Base { int id; abstract void draw(); }
class Circle : Base { Point centre; double radius; override void draw() { radius += 1; } void delegate(int) callback; }
union Either { int i; float f; ubyte[16] raw; }
struct Generic(T) { T value; T[4] fixed; }
__gshared Generic!int shared_value; Either either;
extern (C) int c_name(Point* p, Circle c, Generic!long g) { return cast(int) p.x + c.id + cast(int) g.value; }
int mangled(ref Point p, lazy int l) { return l + cast(int) p.y; }
