/* uname(2) of the personality's kernel, as a library for /etc/ld.so.preload: every node shares the machine's
 * kernel, and this is how a program hears another name of it. Without libc, so that any compiler builds it.
 * /run/clusterlab/kernel-name has the release on its first line and the version on its second; until it is
 * there, and for programs that call the kernel themselves (Go), the machine's own name stands. */

#define SYS_READ 0
#define SYS_OPEN 2
#define SYS_CLOSE 3
#define SYS_UNAME 63
#define FIELD 65

struct utsname {
    char sysname[FIELD], nodename[FIELD], release[FIELD], version[FIELD], machine[FIELD], domainname[FIELD];
};

static long call(long number, long first, long second, long third)
{
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(first), "S"(second), "d"(third)
                     : "rcx", "r11", "memory");
    return result;
}

static const char *copy_line(char *field, const char *text)
{
    int length = 0;
    while (*text && *text != '\n') {
        if (length < FIELD - 1)
            field[length++] = *text;
        text++;
    }
    field[length] = 0;
    return *text ? text + 1 : text;
}

int uname(struct utsname *name)
{
    char text[2 * FIELD];
    long file, size = 0;
    if (call(SYS_UNAME, (long)name, 0, 0) < 0)
        return -1;
    file = call(SYS_OPEN, (long)"/run/clusterlab/kernel-name", 0, 0);
    if (file >= 0) {
        size = call(SYS_READ, file, (long)text, sizeof text - 1);
        call(SYS_CLOSE, file, 0, 0);
    }
    if (size > 0) {
        text[size] = 0;
        copy_line(name->version, copy_line(name->release, text));
    }
    return 0;
}
