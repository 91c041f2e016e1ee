package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Labels on AllocationHistories.
const (
	// LabelHistoryDay is spec.day.
	LabelHistoryDay = "butler.butlerlabs.dev/history-day"
	// LabelHistoryPool is a hash of spec.pool.
	LabelHistoryPool = "butler.butlerlabs.dev/history-pool"
)

// AnnotationHistoryRecorded on an AllocationHistory is a JSON object: resource to
// resourceVersion. The AllocationHistories that were stored before this one contain every
// allocation and release up to these versions.
const AnnotationHistoryRecorded = "butler.butlerlabs.dev/history-recorded"

// AllocationHistorySpec is allocations and releases of one pool on one day.
type AllocationHistorySpec struct {
	// pool is the kind, the namespace and the name of the pool, separated by slashes;
	// empty for claims without a pool.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Pool string `json:"pool,omitempty"`

	// day is the day of the records in UTC, as 2026-11-28.
	// +required
	// +kubebuilder:validation:MaxLength=10
	Day string `json:"day"`

	// part numbers the objects of a pool and a day, from 0: an object that is full is
	// followed by another.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Part int32 `json:"part"`

	// count is the number of records.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Count int32 `json:"count"`

	// incomplete is true in the last object of a pool and a day with more records than
	// there is room for. The log of the manager has the further records.
	// +optional
	Incomplete bool `json:"incomplete,omitempty"`

	// records has a line for each allocation and each release, of the shape of the log
	// lines of logger history, compressed with gzip.
	// +optional
	// +kubebuilder:validation:MaxLength=400000
	Records []byte `json:"records,omitempty"`
}

// AllocationHistory records who owned which addresses of a pool, on one day. The manager
// creates it in its own namespace if a retention is set, and deletes it after the
// retention.
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:resource:path=allocationhistories,scope=Namespaced
// +kubebuilder:printcolumn:name="Pool",type=string,JSONPath=".spec.pool"
// +kubebuilder:printcolumn:name="Day",type=string,JSONPath=".spec.day"
// +kubebuilder:printcolumn:name="Part",type=integer,JSONPath=".spec.part"
// +kubebuilder:printcolumn:name="Records",type=integer,JSONPath=".spec.count"
// +kubebuilder:printcolumn:name="Incomplete",type=boolean,JSONPath=".spec.incomplete",priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=".metadata.creationTimestamp",priority=1
type AllocationHistory struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the records.
	// +required
	Spec AllocationHistorySpec `json:"spec"`
}

// AllocationHistoryList is a list of AllocationHistories.
// +kubebuilder:object:root=true
type AllocationHistoryList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []AllocationHistory `json:"items"`
}
