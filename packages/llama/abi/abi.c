/* Prints the sizes, offsets and constants of the llama.cpp release headers as JSON, for the library check at start.
 *
 *   cc -I "$LLAMA_CPP_HEADERS/include" -I "$LLAMA_CPP_HEADERS/ggml/include" abi.c -o abi && ./abi > layout.json
 *
 * where LLAMA_CPP_HEADERS is the llama.cpp source tree of the release that the pinned packages carry. A test does this
 * and compares with the layout.json of the repository.
 */

#include "llama.h"
#include "ggml-cpu.h"

#include <stddef.h>
#include <stdio.h>

#define OPEN(type) \
    printf("%s\n    \"%s\": { \"size\": %zu, \"fields\": {", first_struct ? "" : ",", #type, sizeof(struct type)); \
    first_struct = 0; \
    first = 1
#define FIELD(type, field) \
    printf("%s\n      \"%s\": [%zu, %zu]", first ? "" : ",", #field, offsetof(struct type, field), sizeof(((struct type *) 0)->field)); \
    first = 0
#define CLOSE() printf("\n    } }")
#define CONSTANT(name) \
    printf("%s\n    \"%s\": %lld", first ? "" : ",", #name, (long long) (name)); \
    first = 0

int main(void) {
    int first_struct = 1;
    int first = 1;

    printf("{\n  \"pointerSize\": %zu,\n  \"structs\": {", sizeof(void *));

    OPEN(llama_model_params);
    FIELD(llama_model_params, devices);
    FIELD(llama_model_params, tensor_buft_overrides);
    FIELD(llama_model_params, n_gpu_layers);
    FIELD(llama_model_params, split_mode);
    FIELD(llama_model_params, load_mode);
    FIELD(llama_model_params, lazy_mode);
    FIELD(llama_model_params, main_gpu);
    FIELD(llama_model_params, tensor_split);
    FIELD(llama_model_params, progress_callback);
    FIELD(llama_model_params, progress_callback_user_data);
    FIELD(llama_model_params, kv_overrides);
    FIELD(llama_model_params, vocab_only);
    FIELD(llama_model_params, check_tensors);
    FIELD(llama_model_params, use_extra_bufts);
    FIELD(llama_model_params, no_host);
    FIELD(llama_model_params, no_alloc);
    FIELD(llama_model_params, load_mtp);
    CLOSE();

    OPEN(llama_context_params);
    FIELD(llama_context_params, n_ctx);
    FIELD(llama_context_params, n_batch);
    FIELD(llama_context_params, n_ubatch);
    FIELD(llama_context_params, n_seq_max);
    FIELD(llama_context_params, n_rs_seq);
    FIELD(llama_context_params, n_outputs_max);
    FIELD(llama_context_params, n_outputs_max_per_seq);
    FIELD(llama_context_params, n_threads);
    FIELD(llama_context_params, n_threads_batch);
    FIELD(llama_context_params, ctx_type);
    FIELD(llama_context_params, rope_scaling_type);
    FIELD(llama_context_params, pooling_type);
    FIELD(llama_context_params, attention_type);
    FIELD(llama_context_params, flash_attn_type);
    FIELD(llama_context_params, rope_freq_base);
    FIELD(llama_context_params, rope_freq_scale);
    FIELD(llama_context_params, yarn_ext_factor);
    FIELD(llama_context_params, yarn_attn_factor);
    FIELD(llama_context_params, yarn_beta_fast);
    FIELD(llama_context_params, yarn_beta_slow);
    FIELD(llama_context_params, yarn_orig_ctx);
    FIELD(llama_context_params, defrag_thold);
    FIELD(llama_context_params, cb_eval);
    FIELD(llama_context_params, cb_eval_user_data);
    FIELD(llama_context_params, type_k);
    FIELD(llama_context_params, type_v);
    FIELD(llama_context_params, abort_callback);
    FIELD(llama_context_params, abort_callback_data);
    FIELD(llama_context_params, embeddings);
    FIELD(llama_context_params, offload_kqv);
    FIELD(llama_context_params, no_perf);
    FIELD(llama_context_params, op_offload);
    FIELD(llama_context_params, swa_full);
    FIELD(llama_context_params, kv_unified);
    FIELD(llama_context_params, samplers);
    FIELD(llama_context_params, n_samplers);
    FIELD(llama_context_params, ctx_other);
    CLOSE();

    OPEN(llama_batch);
    FIELD(llama_batch, n_tokens);
    FIELD(llama_batch, token);
    FIELD(llama_batch, embd);
    FIELD(llama_batch, pos);
    FIELD(llama_batch, n_seq_id);
    FIELD(llama_batch, seq_id);
    FIELD(llama_batch, logits);
    CLOSE();

    OPEN(ggml_threadpool_params);
    FIELD(ggml_threadpool_params, cpumask);
    FIELD(ggml_threadpool_params, n_threads);
    FIELD(ggml_threadpool_params, prio);
    FIELD(ggml_threadpool_params, poll);
    FIELD(ggml_threadpool_params, strict_cpu);
    FIELD(ggml_threadpool_params, paused);
    CLOSE();

    OPEN(ggml_tensor);
    FIELD(ggml_tensor, type);
    FIELD(ggml_tensor, buffer);
    FIELD(ggml_tensor, ne);
    FIELD(ggml_tensor, nb);
    CLOSE();

    printf("\n  },\n  \"constants\": {");
    first = 1;
    CONSTANT(LLAMA_FLASH_ATTN_TYPE_ENABLED);
    CONSTANT(LLAMA_VOCAB_TYPE_NONE);
    CONSTANT(LLAMA_TOKEN_NULL);
    CONSTANT(LLAMA_TOKEN_ATTR_UNKNOWN);
    CONSTANT(LLAMA_TOKEN_ATTR_CONTROL);
    CONSTANT(LLAMA_STATE_SEQ_FLAGS_NONE);
    CONSTANT(GGML_TYPE_F32);
    CONSTANT(GGML_TYPE_F16);
    CONSTANT(GGML_TYPE_BF16);
    CONSTANT(GGML_TYPE_Q4_0);
    CONSTANT(GGML_TYPE_Q4_1);
    CONSTANT(GGML_TYPE_Q5_0);
    CONSTANT(GGML_TYPE_Q5_1);
    CONSTANT(GGML_TYPE_Q8_0);
    CONSTANT(GGML_LOG_LEVEL_DEBUG);
    CONSTANT(GGML_LOG_LEVEL_INFO);
    CONSTANT(GGML_LOG_LEVEL_WARN);
    CONSTANT(GGML_LOG_LEVEL_ERROR);
    CONSTANT(GGML_LOG_LEVEL_CONT);
    CONSTANT(GGML_BACKEND_DEVICE_TYPE_CPU);
    CONSTANT(GGML_BACKEND_DEVICE_TYPE_GPU);
    CONSTANT(GGML_BACKEND_DEVICE_TYPE_IGPU);
    printf("\n  }\n}\n");
    return 0;
}
