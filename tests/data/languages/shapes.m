struct point { int x, y; };
@interface Shape { int identifier; struct point where; id next; } - (int) area: (int) scale; @end
@implementation Shape - (int) area: (int) scale { return identifier * scale + where.x; } @end
int use(Shape *s) { return [s area: 3]; }
