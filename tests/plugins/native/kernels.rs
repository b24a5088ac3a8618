//! Kernels in Rust: float32 additions and multiplications of tensors of one shape, as a list of kernels. The name of a
//! layer may ask for something that the binding must refuse, such as "the output twice".

#[path = "INCLUDE/interposer/backend.rs"]
mod interposer;

use std::sync::{Arc, Mutex};

use interposer::*;

/// What a panic carries, and what panics again when it is dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("while the payload is dropped")
    }
}

/// The list of kernels of the first part, for every run.
static FIRST: Mutex<Option<Arc<KernelList>>> = Mutex::new(None);

/// Runs the kernels of another part than its own.
struct Borrowed(Arc<KernelList>);

impl Executable for Borrowed {
    fn execute(&self, run: &Run) -> Result<()> {
        self.0.execute(run)
    }
}

/// Asks for what it is named after, before it gives its output zeros.
struct Careless(String);

impl Executable for Careless {
    fn execute(&self, run: &Run) -> Result<()> {
        match self.0.as_str() {
            "int32 of an input" => drop(run.input(0)?.data::<i32>()?),
            "double of an output" => drop(run.output(0)?.data::<f64>()?),
            "the output twice" => drop((run.output(0)?, run.output(0)?)),
            "the workspace twice" => drop((run.workspace()?, run.workspace()?)),
            "another shape" => run.resize(0, &[1])?,
            "a payload that panics, on an output" => std::panic::panic_any(Bomb),
            "an input too many" => drop(run.input(run.input_count())),
            _ => (),
        }
        Ok(run.output(0)?.data::<f32>()?.fill(0.0))
    }
}

struct Kernels;

impl Backend for Kernels {
    fn new() -> Kernels {
        Kernels
    }
    fn info(&self) -> Info {
        Info { vendor: "Tests", capabilities: raw::CAP_DETERMINISTIC | raw::CAP_CONCURRENT_EXECUTE, ..Info::default() }
    }
    fn support(&self, layer: &Layer, _options: Attributes) -> Verdict {
        let (name, out) = (layer.type_name(), layer.output(0));
        let fits = |info: TensorInfo| info.shape() == out.shape();
        if name != "Addition" && name != "Multiplication" {
            return Verdict::no(format!("no kernel for {}", name), raw::REASON_LAYER_TYPE);
        }
        if out.dtype() != raw::DTYPE_FLOAT32 || !(0..2).all(|n| layer.input(n).map_or(false, fits)) {
            return Verdict::no("only float32 tensors of one shape", raw::REASON_SHAPE);
        }
        Verdict::yes()
    }
    fn kernel(&self, layer: &Layer, _options: Attributes) -> Result<Kernel> {
        let product = layer.type_name() == "Multiplication";
        let as_int32 = layer.name() == "int32 of an operand";
        let takes_no_nines = layer.name() == "without nines";
        Ok(Box::new(move |inputs, outputs| {
            if as_int32 {
                inputs.data::<i32>(0)?;
            }
            let (a, b) = (inputs.data::<f32>(0)?, inputs.data::<f32>(1)?);
            if let (true, Some(element)) = (takes_no_nines, a.iter().position(|value| *value == 9.0)) {
                let wrong = WrongValue { operand: 0, element, value: 9, lowest: -2, highest: 4 };
                return Err(Error::invalid_value("nine is too much", 0, wrong));
            }
            for (out, (a, b)) in outputs[0].data::<f32>()?.iter_mut().zip(a.iter().zip(b)) {
                *out = if product { a * b } else { a + b };
            }
            Ok(())
        }))
    }
    fn compile(&self, graph: Graph, options: Attributes) -> Result<Box<dyn Executable>> {
        let name = graph.layer(0).name();
        if name.contains(" twice") || name.contains("put") || name.contains("another shape") {
            return Ok(Box::new(Careless(name.to_owned())));
        }
        if name == "the list of the first part" {
            let mut first = FIRST.lock().unwrap();
            let list = || KernelList::new(graph, |layer| self.kernel(layer, options)).map(Arc::new);
            let list = first.clone().map_or_else(list, Ok)?;
            *first = Some(list.clone());
            return Ok(Box::new(Borrowed(list)));
        }
        Ok(Box::new(KernelList::new(graph, |layer| self.kernel(layer, options))?))
    }
}

export_backend!("Kernels", Kernels);
