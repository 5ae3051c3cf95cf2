/* A module of Python's in C that takes memory by malloc, and loses some. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

__attribute__((noinline)) void *lose_a_block(size_t bytes)
{
    void *block = malloc(bytes);
    memset(block, 1, bytes);
    return block;
}

static PyObject *lose(PyObject *self, PyObject *bytes)
{
    (void)self;
    lose_a_block(PyLong_AsSize_t(bytes));
    Py_RETURN_NONE;
}

static PyObject *take_and_free(PyObject *self, PyObject *bytes)
{
    (void)self;
    free(lose_a_block(PyLong_AsSize_t(bytes)));
    Py_RETURN_NONE;
}

static void *in_thread(void *bytes)
{
    lose_a_block((size_t)bytes);
    return NULL;
}

static PyObject *lose_in_a_thread(PyObject *self, PyObject *bytes)
{
    pthread_t thread;
    (void)self;
    pthread_create(&thread, NULL, in_thread, (void *)PyLong_AsSize_t(bytes));
    pthread_join(thread, NULL);
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"lose", lose, METH_O, ""},
    {"take_and_free", take_and_free, METH_O, ""},
    {"lose_in_a_thread", lose_in_a_thread, METH_O, ""},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "leaky", NULL, -1, functions, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_leaky(void) { return PyModule_Create(&module); }
