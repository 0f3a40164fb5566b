/* A unit with one of everything that C turns into DWARF: for the tests that damage it, for those
 * that compare readers, and as a seed of the fuzz targets. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__clang__) && __has_attribute(btf_decl_tag)
#define TAG(text) __attribute__((btf_decl_tag(text)))
#define TYPE_TAG(text) __attribute__((btf_type_tag(text)))
#else
#define TAG(text)
#define TYPE_TAG(text)
#endif

typedef unsigned int u32;
typedef _Bool flag;
typedef struct list { struct list *next, **pprev; } list_t;
struct opaque;
union number { long integer; double real; float pair[2]; unsigned char bytes[8]; };
enum colour { RED, GREEN = 5, BLUE = -1 };
enum wide { SMALL = 1, LARGE = 0x100000000ULL };
typedef int (*operation)(struct opaque *, const char *restrict, ...);
typedef enum { NAMELESS_ONE, NAMELESS_TWO } nameless_t;

struct flags {
	unsigned int a : 3, b : 5;
	signed int c : 17;
	unsigned long long d : 40;
	enum colour colour : 4;
	flag is_set : 1;
} TAG("flags");

struct __attribute__((packed)) tight { char c; int i; short s; };

struct everything {
	list_t link TAG("link");
	const volatile u32 state;
	_Atomic int counter;
	int TYPE_TAG("user") *pointer;
	struct { int x, y; union { int z; char w[4]; }; };
	struct flags flags;
	union number number;
	enum wide wide;
	nameless_t nameless;
	operation operations[3];
	void (*release)(struct everything *self, list_t by_value);
	struct opaque *opaque;
	char matrix[2][3][4];
	long double precise;
#ifdef __SIZEOF_INT128__
	__int128 huge;
#endif
	struct tight tight;
	struct everything *parents[];
};

struct pair { long first, second; };
struct three { long a, b, c; };

struct everything *global_pointer TAG("global");
static volatile int counter;
int per_cpu __attribute__((section(".data..percpu"))) = 1;
const char text[] = "text";
struct flags all_flags = { 1, 2, 3, 4, GREEN, 1 };
double _Complex complex_number;

static __attribute__((noinline)) long helper(struct pair pair, int unused, int depth)
{
	(void)unused;
	counter += depth;
	return depth > 0 ? pair.first + helper(pair, depth, depth - 1) : pair.second;
}

static inline int inlined(const struct flags *flags, u32 mask)
{
	struct local { int inner; } local = { (int)mask };
	enum { LOCAL_ENUMERATOR = 7 };
	return flags->c + local.inner + LOCAL_ENUMERATOR;
}

long visible(struct everything *everything TAG("argument"), int count, ...)
{
	va_list arguments;
	long sum = 0;
	va_start(arguments, count);
	for (int i = 0; i < count; i++) {
		int step = va_arg(arguments, int);
		sum += step + inlined(&everything->flags, (u32)step);
	}
	va_end(arguments);
	return sum + helper((struct pair){ sum, 2 }, 3, count);
}

int by_stack(int a, int b, int c, int d, int e, int f, struct tight tight, struct three three)
{
	return a + b + c + d + e + f + tight.i + (int)three.b;
}

struct pair returns_struct(struct pair pair, float x, double y)
{
	pair.first += (long)x;
	pair.second += (long)y;
	return pair;
}

int uses_pointers(int (*callback)(void *), void *context, char (*rows)[4], const char *names[])
{
	int result = callback(context) + rows[1][2] + names[0][0];
	for (int i = 0; i < result; i++)
		counter ^= i;
	return result;
}

static int unused_parameters(int a, int b, int c) { return a ? c : counter; }
int calls(int x) { return unused_parameters(x, 1, 2) + unused_parameters(x + 1, 3, 4); }
