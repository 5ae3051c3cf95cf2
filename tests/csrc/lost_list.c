// Loses a list, of which only the first block is lost directly.
#include <stdlib.h>

struct node {
    struct node *next;
};

__attribute__((noinline)) static struct node *make(struct node *next) {
    struct node *node = malloc(sizeof *node);
    if (node == NULL) abort();
    node->next = next;
    return node;
}

static struct node *volatile list;

int main(void) {
    list = make(NULL);
    list = make(list);
    list = make(list);
    list = NULL;
    return 0;
}
