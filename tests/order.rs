//! The orders that the field gets wrong do not compile, and the compiler's message points at the call.

/// The right order compiles, in a file beside the wrong ones.
#[allow(dead_code, reason = "it has to compile, not to run")]
#[path = "order/right_order.rs"]
mod right_order;

#[test]
fn wrong_orders_do_not_compile() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/order/limit_before_unscale.rs");
    cases.compile_fail("tests/order/unscale_twice.rs");
    cases.compile_fail("tests/order/microbatch_after_unscale.rs");
    cases.compile_fail("tests/order/limit_twice.rs");
    cases.compile_fail("tests/order/record_before_unscale.rs");
    cases.compile_fail("tests/order/record_twice.rs");
    cases.compile_fail("tests/order/update_without_recorded_step.rs");
    cases.compile_fail("tests/order/update_twice.rs");
    cases.compile_fail("tests/order/defer_each_tensor.rs");
    cases.compile_fail("tests/order/defer_value.rs");
}
