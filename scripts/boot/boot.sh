# shellcheck shell=bash disable=SC2154
# boot.sh: a kernel in QEMU whose BTF is put to use. Sourced after lib.sh, not run.

need_boot_packages() {
  need_packages gcc libc6-dev clang bpftool libbpf-dev libelf-dev zlib1g-dev cpio qemu-system-x86
  PATH=$PATH:/usr/sbin
}

# boot_with NEW IMAGE BTF: boots IMAGE with the modules in NEW/root/mod, and one static program that loads them all, has
# the BPF object built against BTF attached to a function of the kernel and to one of loop.ko, and checks what that read.
# Fails unless the console says that all is well. NEW is a folder for it.
boot_with() {
  local own=$root/scripts/boot new=$1
  mkdir -p "$new"/root/{mod,proc,sys,dev}
  bpftool btf dump file "$3" format c >"$new/vmlinux.h"
  clang -target bpf -fms-extensions -Wno-microsoft-anon-tag -D__TARGET_ARCH_x86 -g -O2 -Wall -I"$new" \
    -c "$own/prog.bpf.c" -o "$new/prog.bpf.o"
  bpftool gen skeleton "$new/prog.bpf.o" name prog_bpf >"$new/prog.skel.h"
  gcc -static -O2 -I"$new" "$own/init.c" -o "$new/root/init" -lbpf -lelf -lz
  strip "$new/root/init"
  [ -e "$new/root/dev/console" ] || as_root mknod "$new/root/dev/console" c 5 1
  (cd "$new/root" && find . | cpio -o -H newc -R 0:0 2>/dev/null | gzip -1) >"$new/initramfs.gz"
  timeout 300 qemu-system-x86_64 -M pc -accel tcg,thread=multi -cpu max -m 768 -nodefaults -display none -serial stdio \
    -no-reboot -kernel "$2" -initrd "$new/initramfs.gz" -append "console=ttyS0 panic=-1 loop.max_loop=8" \
    </dev/null >"$new/console" 2>&1 || say "qemu ended with status $?"
  grep -aE '^(PASS|FAIL|NOTE|RESULT)' "$new/console" | tr -d '\r' || true
  grep -aq '^RESULT OK' "$new/console" || die "the kernel did not report success: see $new/console"
}
