/* A function of perl's in C that takes memory by malloc, and loses it. */
#define PERL_NO_GET_CONTEXT
#include <EXTERN.h>
#include <perl.h>
#include <XSUB.h>

__attribute__((noinline)) static void lose_a_block(size_t bytes)
{
    void *volatile block = malloc(bytes);
    memset(block, 1, bytes);
}

XS_EXTERNAL(lose)
{
    dXSARGS;
    PERL_UNUSED_VAR(items);
    lose_a_block(SvUV(ST(0)));
    XSRETURN_EMPTY;
}
