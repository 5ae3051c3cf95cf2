/* Named tensors from C: makes one, finds it again, and says what is refused. */
#include "check.h"

#include <poolscope_tensors.h>
#include <string.h>

int main(void) {
    poolscope_store *store = poolscope_tensors_open(NULL);
    CHECK(store != NULL);
    const uint64_t shape[] = {2, 3};
    poolscope_tensor *made = poolscope_tensors_create(store, "from/c", "f32", shape, 2, 0, "{\"by\":\"c\"}");
    CHECK(made != NULL);
    CHECK(poolscope_tensor_bytes(made) == 24);
    const float values[6] = {1, 2, 3, 4, 5, 6};
    CHECK(poolscope_tensor_write(made, 0, values, sizeof values) == 0);
    CHECK(poolscope_tensor_write(made, 8, values, sizeof values) == -1);
    CHECK(strcmp(poolscope_tensors_error_code(), "bad_field") == 0);
    CHECK(poolscope_tensors_commit(store, made) == 0);

    poolscope_tensor *found = poolscope_tensors_get(store, "from/c", "{\"by\":\"c\"}");
    CHECK(found != NULL && poolscope_tensor_address(found) == poolscope_tensor_address(made));
    CHECK(strstr(poolscope_tensor_entry(found), "\"shape\":[2,3]") != NULL);
    float read[6] = {0};
    CHECK(poolscope_tensor_read(found, 0, read, sizeof read) == 0);
    CHECK(memcmp(read, values, sizeof read) == 0);
    poolscope_tensor_release(found);

    CHECK(poolscope_tensors_get(store, "from/c", "{\"by\":\"python\"}") == NULL);
    CHECK(strcmp(poolscope_tensors_error_code(), "mismatch") == 0);
    CHECK(poolscope_tensors_get(store, "nobody", NULL) == NULL);
    CHECK(strcmp(poolscope_tensors_error_code(), "no_such_name") == 0);
    CHECK(poolscope_tensors_get(store, NULL, NULL) == NULL);
    CHECK(poolscope_tensors_get(NULL, "from/c", NULL) == NULL);

    /* Streams: what one writes is there for another, and is given back behind its work. */
    poolscope_tensor *drawn = poolscope_tensors_create(store, "from/c/stream", "u8", shape, 2, 0, NULL);
    CHECK(drawn != NULL && poolscope_tensor_commit_on(drawn, 0) == 0);
    poolscope_tensor *on = poolscope_tensors_get_on(store, "from/c/stream", NULL, 0);
    CHECK(on != NULL && strstr(poolscope_tensor_entry(on), "\"ready\":{") != NULL);
    CHECK(poolscope_tensor_record_stream(on, 0) == 0 && poolscope_tensor_record_stream(NULL, 0) == -1);
    poolscope_tensor_release(on);
    poolscope_tensor_release(drawn);
    char *gone = poolscope_tensors_request(store, "{\"op\":\"delete\",\"name\":\"from/c/stream\",\"all\":true}");
    CHECK(gone != NULL);
    poolscope_tensors_free(gone);
    CHECK(poolscope_tensors_open_within("/nowhere/tensors.sock", 0.01) == NULL);
    CHECK(strcmp(poolscope_tensors_error_code(), "no_owner") == 0);
    CHECK(poolscope_tensors_open_within(NULL, -1) == NULL);

    size_t count = 0;
    poolscope_tensor **all = poolscope_tensors_get_many(store, "from/", &count);
    CHECK(all != NULL && count == 1);
    poolscope_tensor_release(all[0]);
    poolscope_tensors_free(all);

    char *reply = poolscope_tensors_request(store, "{\"op\":\"stats\"}");
    CHECK(reply != NULL && strstr(reply, "\"names\":1") != NULL);
    poolscope_tensors_free(reply);
    poolscope_tensor_release(made);
    poolscope_tensor_release(NULL);
    poolscope_tensors_close(store);
    return failed_checks;
}
