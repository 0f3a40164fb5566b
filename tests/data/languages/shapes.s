	.file "shapes.s"
	.text
	.globl start
	.type start, @function
start:	ret
	.size start, .-start
	.data
	.globl word
word:	.long 3
